"""The import: what an MCP client's configuration file says, as a configuration of effectd.

May import `driver.config` and `driver.core`, and `files` what the store has to make a name durable. All but
`files` is pure: text, variables and tool lists in; text, values for files and problems out.

Theory of operation
-------------------
Clients write the same few facts (a program with its words and variables, or an address with its headers) in
a dozen shapes. `shapes` finds the tables of servers in a document, whatever client it is of; `entries` reads
one such table; `planning` turns each into a provider.

**No secret reaches the TOML.** What is one cannot be known, so it is assumed (`secrecy`): every value of a
variable that is no mere switch, every header, whatever came from a variable of the environment, and what
looks like a token in a word or an address. Each goes into a file of its own. A program gets such a word
through the shell that starts it, because no other way leads from a file to a command line.

**Hints are hints.** `proposing` believes what a server says of its tools where that makes a contract more
careful. What would make it less so is written as a comment, unless a person said to believe it.

**Nothing is lost silently.** A server that cannot be taken over stands in the file as a comment that says
why, and so does what a client was told about a server and effectd does not do.

    shapes        servers, wherever a client keeps them        jsonc     JSON with comments
    entries       one server, as its client wrote it           dotenv    files of variables
    placeholders  `${…}`, and what stands for it               secrecy   what must stand in files
    planning      the providers, and the files beside them     names     what they are called
    proposing     contracts, from served tool lists            toml      text that TOML reads as it was
    rendering     the configuration as text                    clients   what to put into the client
    files         reading and writing                          errors    what can be wrong

What is raised:

    ImportRefused       errors   nothing was written
     ├── SourceUnreadable        there is no such file, or it is no text, or neither JSON nor TOML
     ├── SourceInvalid           it is, and breaks the shape that it has: one `Problem` for each mistake
     └── TargetExists            something stands already where the import would write
    NotJson             jsonc    the text is no JSON
"""
