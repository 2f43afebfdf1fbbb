"""Three `shale serve` behind routers of others: who gets what, and what the fleet computes.

    ./shale peers router                      # vllm-router by KV events, and smg: 48 documents, who got them
    ./shale peers router --live [options]     # what the fleet computes and how soon it answers (live.py)

Ends with 1 where vllm-router did not send every request to the server that holds its prefix, or a router failed.
"""

import argparse
import statistics
import sys
import time

import live
from fleet import ask, by_events, document, post, router, servers, smg


def who_answered(fleet, before):
    for server, count in zip(fleet, before):
        if server.requests() > count:
            return server
    return None


def conforms(options):
    """Whether each of the documents reached the server that had computed it."""
    texts = [document(n, options.words) for n in range(options.documents)]
    holder, right, got = {}, 0, {}
    with servers(["--pool", "512MiB", "--tiers", "memory://?size=256MiB"]) as fleet, router(by_events(fleet)) as url:
        for n, text in enumerate(texts):
            holder[n] = fleet[(n * 5 + n // 3) % 3]  # no order that a router could follow by turns
            ask(holder[n].url, fleet[0].model, text, "What is this?")
        time.sleep(1)
        for n, text in enumerate(texts):
            before = [server.requests() for server in fleet]
            usage, _ = ask(url, fleet[0].model, text, "On what does it lie?")
            server = who_answered(fleet, before)
            got.setdefault((holder[n].name, server.name if server else "nobody"), []).append(
                usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
            right += server is holder[n]
    for (held, answered), shares in sorted(got.items()):
        print(f"vllm-router: {len(shares):3} requests whose prefix {held} holds went to {answered}, "
              f"{statistics.mean(shares):.0%} of their prompts cached")
    print(f"vllm-router: {right} of {len(texts)} requests reached the server that holds their prefix")
    return right == len(texts)


def sticks(options):
    """How many repeated requests smg sent to the server that had the document before."""
    texts = [document(n, options.words) for n in range(options.documents)]
    home, again, asked = {}, 0, 0
    with servers(["--pool", "512MiB", "--tiers", "memory://?size=256MiB"]) as fleet, router(smg(fleet)) as url:
        for turn in range(3):
            for n, text in enumerate(texts):
                before = [server.requests() for server in fleet]
                body = {"model": "smollm2-135m", "temperature": 0, "max_tokens": 1,
                        "messages": [{"role": "user", "content": f"{text} Question {turn}?"}]}
                post(url + "/v1/chat/completions", body)
                server = who_answered(fleet, before)
                if turn > 0:
                    asked += 1
                    again += server is home[n]
                home.setdefault(n, server)
    spread = [sum(server is each for each in home.values()) for server in fleet]
    print(f"smg: {again} of {asked} repeated requests went to the server that had the document; "
          f"documents by server: {spread}")
    return all(home.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=48)
    parser.add_argument("--words", type=int, default=300, help="of a document")
    parser.add_argument("--live", action="store_true", help="count what the fleet computes")
    live.add_options(parser.add_argument_group("with --live"))
    options = parser.parse_args()
    if options.live:
        return live.run(options)
    # Both are run, whatever comes of the first.
    return all([conforms(options), sticks(options)])


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
