"""A server that does whatever it is told: its one tool runs Python. It tells what came of it in one line. Where the code
sets `fail`, the call fails with those words."""
import json, sys

def run(code):
    scope = {}
    try:
        exec(code, scope)
        if "fail" in scope:
            return str(scope["fail"]), True
        return "ok: " + str(scope.get("out", "")), False
    except BaseException as e:
        return "error: %s: %s" % (type(e).__name__, e), False

TOOL = {"name": "run", "inputSchema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, result = message["method"], None
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "prisoner", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        text, failed = run(message["params"]["arguments"]["code"])
        result = {"content": [{"type": "text", "text": text}], "isError": failed}
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        answer["error"] = {"code": -32601, "message": "no such method"}
    else:
        answer["result"] = result
    print(json.dumps(answer), flush=True)
