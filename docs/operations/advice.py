"""What each alert means and what to do about it; ``generate.py`` puts it beside the rule itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ADVICE", "Advice"]


@dataclass(frozen=True)
class Advice:
    """Meaning of one alert and what to do about it.

    Args:
        meaning: What has happened, for an operator who has just been woken.
        steps: What to do, in order.
        later: What can wait until the morning.
    """

    meaning: str
    steps: tuple[str, ...]
    later: str


# By name of the alert.
ADVICE = {
    "MildrouteDown": Advice(
        "Prometheus cannot read `/metrics` on this instance. Unless only the scrape fails, its"
        " clients get no response either.",
        (
            (
                "Call it: `curl -s http://HOST:8000/healthz`. If it says `alive`, the connection"
                " from Prometheus is broken, not the gateway."
            ),
            (
                "If `/metrics` answers 401, Prometheus does not send the key of `metrics_key_env`,"
                " or sends the wrong one."
            ),
            (
                "Read the end of its log. A gateway that cannot start logs the reason in one line:"
                " an expert's key missing from the environment, an unreadable router, an invalid"
                " setting, a port in use."
            ),
            (
                "Restart it. It reads the day's spending from the decision log; circuits and"
                " conversations start empty."
            ),
            "If the outage came with a new router or a new version, go back to the previous one.",
        ),
        "If it was killed for running out of memory, compare with [scaling](scaling.md).",
    ),
    "MildrouteErrors": Advice(
        "More than one request in a hundred ends with a 5xx: every expert that was called failed,"
        " or the gateway itself did.",
        (
            (
                "Find the status: `sum by (status) (rate(mildroute_requests_total[5m]))`. 502 and"
                " 504: the experts. 503: the last expert called was cooling down or overloaded, or"
                " returned 503 itself. 500: an expert's own 500, or an error in the gateway, which"
                " then logs `... failed: ...`."
            ),
            (
                "Find the expert and the reason: `sum by (expert, reason)"
                " (rate(mildroute_fallbacks_total[5m]))`. [Failure"
                " reasons](codes.md#failure-reasons) explains them."
            ),
            (
                "`misconfigured`: the provider rejects the gateway's own key, address or model. A"
                " key has expired or has no credit, or a model was retired. Fix `experts.yaml` and"
                " send SIGHUP; a changed variable needs a restart."
            ),
            (
                "If a provider is unavailable and only one expert is left, add another one to"
                " `experts.yaml`, or raise `failover.max_attempts` if it lists more than three."
            ),
        ),
        "One failing expert must not be enough to fire this alert. If it was, no second expert can"
        " take these requests (`context`, `capabilities`).",
    ),
    "MildrouteOverloaded": Advice(
        "A process rejects requests with 503, `overloaded`, because `limits.max_in_flight` (1,024)"
        " are already in flight, or their bodies fill `limits.max_bytes_in_flight` (512 MiB). The"
        " requests in flight are answered. No other alert counts the rejected ones, because they"
        " never reach a decision.",
        (
            (
                "Find what is full: `mildroute_in_flight` by instance. If one replica is full and"
                " others are not, check the load balancer."
            ),
            (
                "Check whether responses take longer than usual: `mildroute_request_seconds` by"
                " expert. A provider that hangs holds requests until `failover.timeout` (120"
                " seconds), streams until `failover.first_byte_timeout` (60). Take that expert out"
                " of `experts.yaml` and send SIGHUP, or shorten these timeouts in `gateway.yaml`"
                " (needs a restart)."
            ),
            (
                "If traffic has grown, add replicas. With memory to spare, raise"
                " `limits.max_in_flight` (needs a restart): each request holds its body and, unless"
                " it streams, its response."
            ),
        ),
        "In-flight requests are rate times seconds per response: [scaling](scaling.md#rules). If"
        " one client sends too much, set `requests_per_minute` for its key.",
    ),
    "MildrouteStoreUnavailable": Advice(
        "For two minutes this gateway has not reached the Redis or Valkey that gateways share."
        " `on_store_failure` decides for keys with limits: with `closed` they get 503, with `open`"
        " their limits do not hold.",
        (
            (
                "Check whether one instance or all of them lack it: `mildroute_store_available`. If"
                " only one does, check the network between that gateway and the store."
            ),
            (
                "Read the gateway's log: `the store does not respond` has the `reason`."
                " Connection refused, or no reply in time: the store is down, or its host is"
                " overloaded. `READONLY`: after a failover the gateway has reached a replica; point"
                " the name in `store.url` at the primary. `OOM`: the store's memory is full."
            ),
            (
                "Start or repair the store. Gateways try it twice a second and need no restart;"
                " they then log `the store responds again`."
            ),
            (
                "Do not delete its entries to free memory. If they are lost, gateways report what"
                " they know to the store: [store outage](fleet.md#store-outage)."
            ),
        ),
        "`avg_over_time(mildroute_store_available[1d])` shows whether it has been failing for"
        " longer.",
    ),
    "MildrouteLimitsUnavailable": Advice(
        "For five minutes requests have been rejected with 503, `limits_unavailable`: the store of"
        " the limits is unreachable, and `on_store_failure` is `closed`. No other alert counts the"
        " rejected requests, because they never reach a decision.",
        (
            (
                "Follow the steps of MildrouteStoreUnavailable. If that alert is silent, the"
                " store comes and goes: check `mildroute_store_available` over the last hour."
            ),
            (
                "If the store will be unreachable for long, decide whether clients or limits matter"
                " more. `on_store_failure: open` (needs a restart of the gateways) admits clients."
            ),
        ),
        "",
    ),
    "MildrouteNoRouter": Advice(
        "This gateway runs without a router. Every request that names no expert goes to"
        " `routing.default`, or to the first expert in `experts.yaml` that the gateway can call,"
        ' with the reason `passthrough`. `/readyz` says `ready`, with `"router": null`. No metric'
        " says whether a router was expected, so this alert also fires for a gateway started"
        " [without one](../guide/feedback.md#starting-without-a-router) to gather a log. Silence it"
        " for those, or leave the rule out.",
        (
            (
                "Check the bill: `mildroute_spend_dollars_total`. Clients are answered, at the"
                " price and quality of one expert. If that is the expensive one, the bill grows."
            ),
            (
                "Read the start of its log: `no router: requests are passed through` has"
                " `waiting_for`, the missing folder or URL. A mistyped path, an empty volume and an"
                " empty bucket look the same."
            ),
            (
                "Copy the router there. The gateway loads it within seconds, without a restart. If"
                " the path is wrong, correct it and restart."
            ),
        ),
        "Compare replicas: `count by (digest) (mildroute_router_info)` has one line if all serve"
        " the same router. A router that disappears later does not trigger this alert: the gateway"
        " continues with the one that it has loaded.",
    ),
    "MildrouteExpertDown": Advice(
        "The circuit of this expert has been open for minutes. The expert fails, and the gateway"
        " probes it with one request after each cooldown, which grows from 1 to 60 seconds. Other"
        " experts answer in its place, so clients notice little except the price or the quality.",
        (
            (
                "Clients need no action. Check the provider's status page, or the server if it is"
                " your own."
            ),
            "Call it by hand at the `base_url` in `experts.yaml`.",
            (
                "Check whether the others can carry its load. If not, `mildroute_fallbacks_total`"
                ' grows with `reason="rate_limited"` or `reason="overloaded"`.'
            ),
        ),
        "The circuit closes after the first probe that succeeds. A probe is a client's request. If"
        " the expert gets no requests, its circuit is half-open once the cooldown is over, and the"
        " alert ends although the expert may not have recovered. Each replica has its own circuit;"
        " the alert shows the worst.",
    ),
    "MildrouteFallbacks": Advice(
        "For ten minutes this expert has failed on more than 5% of all requests. The next best"
        " expert answers them, later than usual.",
        (
            (
                "Find the reason: `sum by (reason)"
                ' (rate(mildroute_fallbacks_total{expert="NAME"}[5m]))`.'
            ),
            (
                "`rate_limited`: the provider's rate limit is exceeded. Set `concurrency` for the"
                " expert in `experts.yaml`, or buy a higher limit."
            ),
            (
                "`timeout`: the expert is slow. `failover.first_byte_timeout` decides how long to"
                " wait for a stream; lower it to fall back sooner."
            ),
        ),
        "If it continues, take the expert out of `experts.yaml`. The router's other choices do not"
        " change.",
    ),
    "MildrouteSlowDecisions": Advice(
        "One decision in twenty takes longer than a quarter of a second. Nearly all of that is"
        " waiting for the encoder.",
        (
            (
                "Check `mildroute_encoder_queue` and `rate(process_cpu_seconds_total[5m])`. If the"
                " queue does not empty and a core is saturated, the gateway lacks processor time."
            ),
            "Add replicas. Raise `encoder.threads` only if the machine has cores to spare.",
        ),
        "TF-IDF takes a 70th of MiniLM's time, and often serves as well:"
        " [encoders](../guide/encoders.md).",
    ),
    "MildrouteRouterTimeout": Advice(
        "More than 5% of requests got no decision within `encoder.timeout` and went to the safe"
        " default. They are answered, at the price and quality of that one expert.",
        (
            "Follow the steps of MildrouteSlowDecisions.",
            (
                "Until you have added capacity, raise `encoder.timeout` (needs a restart): requests"
                " wait longer, and more of them get a decision."
            ),
        ),
        "`router_timeout` also counts inputs beyond `encoder.max_queue_size`, and batches on which"
        " the encoder failed (`the encoder failed` in the log).",
    ),
    "MildrouteOutOfDistribution": Advice(
        "For an hour more than 5% of inputs have been out of distribution, unlike anything that the"
        " router was trained on. They go to the safe default.",
        ("Do nothing at night: this is what the safe default is for.",),
        "Find out what is new (`reason` and, if logged, `text` in the decision log),"
        " [collect](../guide/collecting.md) some of it and fit again:"
        " [retraining](../guide/feedback.md#retraining).",
    ),
    "MildrouteDrift": Advice(
        "Over the last 2,000 decisions, the router's predictions are distributed differently than"
        " on its held-out rows, or than in its first decisions if the artifact has no reference:"
        ' `of="shares"`, which expert it would choose; `of="scores"`, how sure it is.',
        ("Do nothing at night: clients are answered. The usual cause is a change in traffic.",),
        "Measure before you fit: drift shows that inputs have changed, not that decisions are"
        " worse. `mildroute costs from-log` shows what the experts cost now, and"
        " [feedback](../guide/feedback.md) what to do next.",
    ),
    "MildrouteLogLost": Advice(
        "The gateway could not write lines of the decision log, the feedback or the samples: the"
        " disk is full or gone. Requests are answered as usual, but their decisions are not"
        " recorded. The gateway's own log has `nothing can be written into ...` with the reason.",
        (
            (
                "Free disk space, or repair the disk: run `df -h` on `log.folder`. Writing resumes"
                " without a restart."
            ),
            (
                "Do not restart the gateway for this: it would read the keys' spending of the day"
                " from an incomplete log."
            ),
        ),
        "Lost lines cannot be recovered. After the next restart, the keys' spending is too low by"
        " that amount, and `mildroute costs from-log` does not see them. Nothing deletes old files."
        " Give the log a larger disk ([scaling](scaling.md#rules)), or delete finished files of"
        " earlier days, once they are copied if you need them. Keep today's files: a restarted"
        " gateway without a store reads the spending for `dollars_per_day` from them. You may move"
        " the current file away; a new one begins within a second.",
    ),
    "MildrouteReloadRejected": Advice(
        "A new router, or a new file of experts or keys, was invalid. The gateway keeps the old"
        " one, so it may still accept a revoked key.",
        (
            (
                "Read its log: `the router was not replaced: ...`, `the experts stay as they were:"
                " ...` or `the keys stay as they were: ...` gives the reason, with file and line."
            ),
            "Fix the file or restore the previous one, then send SIGHUP or call `/admin/reload`.",
            (
                "Compare the replicas: `count by (digest) (mildroute_router_info)` has one line if"
                " all serve the same router."
            ),
        ),
        "Write a new router into a separate folder next to the old one, then rename it: a reload in"
        " the middle of a copy is rejected, too.",
    ),
    "MildrouteNoSaving": Advice(
        "Over the last day the answers cost more than the baseline expert would have charged for"
        " the same tokens.",
        (
            (
                "Find which experts are called: `sum by (expert, reason)"
                " (rate(mildroute_choices_total[1h]))`. If many are `pinned`, the clients chose"
                " them; if many are `router_timeout` or `out_of_distribution`, the safe default"
                " answered."
            ),
            (
                "Check that the prices in `experts.yaml` are current, and which expert"
                " `mildroute_router_info` names as `baseline`."
            ),
        ),
        "A baseline that is not the most expensive expert may be impossible to undercut. Set"
        " `baseline` to what you would use without a router.",
    ),
}
