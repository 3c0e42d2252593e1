"""The walk that both SDKs of PyPI are taken on. In: a client that is connected, or the session of one. Out: what it saw,
as one JSON document on standard output; `crates/wharf-cli/tests/it/clients.rs` judges."""

import json
import os
import sys

KIND, TARGET = sys.argv[1], sys.argv[2:]
FOLDER = os.environ["PROOF_FOLDER"]
ENVIRONMENT = dict(os.environ)
ASKED = {}


def plain(value):
    """As it stands on the wire."""
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


def answers(types):
    """What this client says to whom wants to know something."""

    async def elicitation(context, params):
        ASKED["elicitation"] = params.message
        named = "name" in plain(params)["requestedSchema"]["properties"]
        content = {"name": "Ada"} if named else {"username": "ada", "email": "ada@example.org"}
        return types.ElicitResult(action="accept", content=content)

    async def sampling(context, params):
        ASKED["sampling"] = plain(params)["messages"][0]["content"]["text"]
        content = types.TextContent(type="text", text="high tide")
        return types.CreateMessageResult(role="assistant", model="none", content=content)

    async def roots(context):
        ASKED["roots"] = True
        return types.ListRootsResult(roots=[types.Root(uri=f"file://{FOLDER}", name="quay")])

    return {
        "elicitation_callback": elicitation,
        "sampling_callback": sampling,
        "list_roots_callback": roots,
    }


async def everything(page, member):
    """Every page of a list."""
    found, cursor = [], None
    while True:
        result = plain(await page(cursor))
        found += result[member]
        cursor = result.get("nextCursor")
        if not cursor:
            return found


async def failed(call, failure):
    try:
        return {"result": plain(await call)}
    except failure as error:
        return {"code": error.error.code, "message": error.error.message}


async def walk(client, types, protocol, server, failure, uri=str):
    call = client.call_tool

    async def tool(name, arguments, **options):
        return plain(await call(name, arguments, **options))["content"][0]["text"]

    def paged(method, member):
        def page(cursor):
            return method(cursor=cursor) if cursor else method()

        return everything(page, member)

    steps = []

    async def step(progress, total, message):
        steps.append([progress, total])

    seen = {"protocol": protocol, "server": server}
    seen["tools"] = [t["name"] for t in await paged(client.list_tools, "tools")]
    seen["resources"] = [r["uri"] for r in await paged(client.list_resources, "resources")]
    templates = await paged(client.list_resource_templates, "resourceTemplates")
    seen["templates"] = [t["uriTemplate"] for t in templates]
    seen["prompts"] = [p["name"] for p in await paged(client.list_prompts, "prompts")]
    seen["sum"] = await tool("everything_get-sum", {"a": 2, "b": 40})
    structured = await call("everything_get-structured-content", {"location": "Chicago"})
    seen["structured"] = plain(structured)["structuredContent"]
    seen["status"] = await tool("git_git_status", {"repo_path": FOLDER})
    seen["file"] = await tool("filesystem_read_text_file", {"path": f"{FOLDER}/note.txt"})
    seen["folders"] = await tool("filesystem_list_allowed_directories", {})
    long = {"duration": 0.2, "steps": 4}
    seen["long"] = await tool("everything_trigger-long-running-operation", long, progress_callback=step)
    seen["steps"] = steps
    seen["resource"] = plain(await client.read_resource(uri("demo://resource/dynamic/text/7")))["contents"][0]
    prompt = await client.get_prompt("everything_args-prompt", {"city": "Kiel", "state": "SH"})
    seen["prompt"] = plain(prompt)["messages"][0]["content"]["text"]
    reference = types.PromptReference(type="ref/prompt", name="everything_completable-prompt")
    found = await client.complete(reference, {"name": "department", "value": "S"})
    seen["completion"] = plain(found)["completion"]["values"]
    seen["wrong"] = await failed(call("everything_get-sum", {"a": "two", "b": 40}), failure)
    seen["unknown"] = await failed(call("everything_no-such", {}), failure)
    form = await call("everything_trigger-elicitation-request", {})
    seen["everything"] = plain(form)["content"][1]["text"]
    seen["elicited"] = await tool("asking_test_elicitation", {"message": "Who is it?"})
    seen["sampled"] = await tool("asking_test_sampling", {"prompt": "How is the tide?"})
    seen["asked"] = ASKED
    print(json.dumps(seen))
