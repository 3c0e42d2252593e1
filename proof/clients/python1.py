"""The client of PyPI's `mcp` 1.x: `python1.py http URL`, `python1.py sse URL`, `python1.py stdio PROGRAM ARG…`."""

import asyncio

from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

from walk import ENVIRONMENT, KIND, TARGET, answers, walk


def transport():
    if KIND == "http":
        return streamable_http_client(TARGET[0])
    if KIND == "sse":
        return sse_client(TARGET[0])
    return stdio_client(StdioServerParameters(command=TARGET[0], args=TARGET[1:], env=ENVIRONMENT))


async def main():
    async with transport() as streams, ClientSession(streams[0], streams[1], **answers(types)) as session:
        hello = await session.initialize()
        await walk(session, types, hello.protocolVersion, hello.serverInfo.name, McpError, AnyUrl)


asyncio.run(main())
