"""The gateway: what an agent in the sandbox sees as one MCP server, with the journal under each of its calls.

May import `driver.core`, `driver.config` (the sockets' names), `driver.providers` (its protocols) and
`store`. What runs inside the agent's own process tree (`relay` and what it imports) imports the standard
library and anyio alone: an agent starts it, waits for it, and pays for its memory.

Theory of operation
-------------------

    agent ⇄ stdio ⇄ `effectd mcp` (relay) ⇄ gateway.sock ─┐
                                                          ├─ front (the SDK's server side) ─ calls ─ engine
    agent ⇄ Streamable HTTP (`[gateway] listen`) ─────────┘

**One server, in the daemon.** MCP is spoken there, by the official SDK, in both eras of the protocol,
whatever a call comes over. The relay carries lines. It knows of MCP what it needs to outlive the daemon:
which requests are unanswered, and how the session was opened.

**Identity.** A JSON-RPC id names a call within one connection, and an agent's arguments are no name at all.
So the relay mints a random command id for each call before it sends it, and asks again with the same id
whenever it has a new connection. What the journal knows under this id is answered from it; nothing is
executed twice. Over HTTP there is nobody who could ask again: the id is the gateway's own.

**An answer goes out after its outcome is committed.** A call waits for the journal's word about its command,
never for the provider's. What the provider said is kept in memory meanwhile, so that the agent gets it as it
came, also where the contract withholds parts of it from the journal.

**A call whose answer never arrived guards.** An agent that did not hear sends the same thing once more.
That an answer was delivered is noted, lazily, beside its command; until then an equal call of the run is
refused with the state and the result of its twin, as it is while the twin runs or may have happened
(`twins`).

**Coalescing.** A call equal to one that runs, in the same run, attaches to it: one execution, two answers.

    relay      `effectd mcp`: lines, reconnection, ids       ledger    its unanswered requests
    link       its connection, once both have greeted        offline   what it says itself, without a daemon
    stdio      the agent's end of it                         wire      what it and the daemon agree on
    connection the socket between them                       lines     lines with a bound
    instructions  what a model is told first

    server     the parts, run together                       sources   what the daemon gives it
    front      MCP requests, to what answers them            turns     one request, whatever it came over
    sockets    gateway.sock: one session for each relay      http      Streamable HTTP, behind a token
    exchange   one request over HTTP: was its answer heard?  patience  its connection
    rejections what the SDK is not given, and its answer     backlog   what one relay leaves unread
    bodies     what is posted over HTTP
    catalogue  the tools of all providers, by name           names     what they are called
    fitting    what of a list clients can read
    passing    resources and prompts, for reading            own       `effectd__…`: tools of our own
    calls      a call from its arrival to its answer         waiting   those that wait, and what they hear
    asking     a call, and what the journal says of it       runs      who may speak for a run
    twins      equal calls that were made before             predecessors  runs that one continues by itself
    sessions   what a run over HTTP continues                unconfirmed  answers that a stop waits for
    outcomes   what a call came to                           answers   outcomes as tool results
    words      what a model is told                          objections  what is not taken
    limits     every bound
    approvals  asking a person, in the client too            errors    what keeps it from starting

What is raised between these modules:

    GatewayError         errors   the gateway cannot do what the configuration asks for: no start
     └── AddressUnusable errors   nobody can listen at the configured address
    TooManyOpen          predecessors  more was left open than one run may continue: its calls are refused
    NotServed            link     the daemon does not serve this relay, which goes on looking for another
    ClientGone           relay    the agent reads no more: the relay ends
    LineTooLong          lines    a message is above its bound
"""
