"""An MCP server made with the `mcp` package: over standard input and output, or by HTTP at the port that is given."""
import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("oracle", log_level="WARNING")


@server.tool()
async def get_weather(city: str, context: Context) -> str:
    """The weather of a city."""
    await context.report_progress(1, 2)
    return f"sun in {city}"


@server.tool()
def get_time() -> dict[str, int]:
    """The time."""
    return {"hour": 12}


@server.tool()
def send_letter(text: str, copies: int) -> str:
    """Sends a letter."""
    raise ValueError("the post is closed")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        server.run()
    server.run("streamable-http", port=int(sys.argv[1]), json_response=sys.argv[2:] == ["json"])
