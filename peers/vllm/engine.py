"""A vLLM engine behind a pipe: engine.py MODEL [CONNECTOR_OPTIONS]. Each line of input is a list of prompts,
{"ids": [tokens], "max_tokens": N, "salt": text or null, "prompt_logprobs": N or null}, answered one after the other; "reset"
empties vLLM's own cache, "can reset" also answers whether it did, "metrics" is answered by the connector's. Each line of output is a list of {"text", "tokens", "cached",
"ttft_s", "prompt_logprobs"}. Options are those of the connector, or of vLLM's offloading; none: vLLM alone."""

import json
import os
import sys


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM writes there, too
    from vllm import LLM, SamplingParams

    options = {}
    if len(sys.argv) > 2:
        options["kv_transfer_config"] = {
            "kv_connector": "ShaleConnector", "kv_connector_module_path": "shale.vllm", "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute", "kv_connector_extra_config": json.loads(sys.argv[2])}
        if "spec_name" in options["kv_transfer_config"]["kv_connector_extra_config"]:
            options["kv_transfer_config"].update(kv_connector="OffloadingConnector", kv_connector_module_path=None)
    llm = LLM(sys.argv[1], enforce_eager=True, max_model_len=8192, disable_log_stats=False, **options)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        done = []
        for prompt in json.loads(line):
            if prompt == "reset":
                llm.reset_prefix_cache()
                continue
            if prompt == "can reset":
                done.append(llm.reset_prefix_cache())
                continue
            if prompt == "metrics":
                done.append({each.name.removeprefix("vllm:shale_"): each.value for each in llm.get_metrics()
                             if each.name.startswith("vllm:shale_")})
                continue
            given = {"prompt_token_ids": prompt["ids"]}
            if prompt.get("salt"):
                given["cache_salt"] = prompt["salt"]
            parameters = SamplingParams(temperature=0, max_tokens=prompt.get("max_tokens", 16),
                                        prompt_logprobs=prompt.get("prompt_logprobs"))
            answer = llm.generate([given], parameters, use_tqdm=False)[0]
            done.append({"text": answer.outputs[0].text, "tokens": list(answer.outputs[0].token_ids),
                         "cached": answer.num_cached_tokens,
                         "ttft_s": answer.metrics.first_token_latency,
                         "prompt_logprobs": [next(iter(each.values())).logprob
                                             for each in (answer.prompt_logprobs or [None])[1:]]})
        print(json.dumps(done), file=answers, flush=True)


if __name__ == "__main__":
    main()
