"""The client of PyPI's `mcp` 2.x, which finds out by itself that the modern era is spoken: `python2.py http URL`,
`python2.py stdio PROGRAM ARG…`."""

import asyncio

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters

from walk import ENVIRONMENT, KIND, TARGET, answers, walk


async def main():
    server = TARGET[0]
    if KIND == "stdio":
        server = StdioServerParameters(command=TARGET[0], args=TARGET[1:], env=ENVIRONMENT)
    async with Client(server, mode="auto", **answers(types)) as client:
        await walk(client, types, client.protocol_version, client.server_info.name, MCPError)


asyncio.run(main())
