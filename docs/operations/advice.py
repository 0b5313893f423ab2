"""What each alert means and what to do about it; ``generate.py`` puts it beside the rule itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ADVICE", "Advice"]


@dataclass(frozen=True)
class Advice:
    """Words on one alert.

    Args:
        meaning: What has happened, for an operator who has just been woken.
        steps: What to do, in order.
        later: What can wait until the morning.
    """

    meaning: str
    steps: tuple[str, ...]
    later: str


# By the name of the alert.
ADVICE = {
    "MildrouteDown": Advice(
        "Prometheus cannot read `/metrics` of this instance. Clients who are sent to it get no"
        " answer either.",
        (
            (
                "Ask it: `curl -s http://HOST:8000/healthz`. If it says `alive`, the way from"
                " Prometheus to it is broken, not the gateway."
            ),
            (
                "If `/metrics` answers 401, Prometheus does not send the key of `metrics_key_env`,"
                " or sends another one."
            ),
            (
                "Look at the end of its log. A gateway that cannot start says why in one line: an"
                " expert's key that is missing from the environment, a router that cannot be read,"
                " a setting that is refused, a port that is taken."
            ),
            (
                "Start it again. It reads the day's spending from the decision log; circuits and"
                " conversations start empty."
            ),
            "If a new router or a new version came with the outage, go back to the one before.",
        ),
        "If it was killed for memory, compare with [capacity](capacity.md).",
    ),
    "MildrouteErrors": Advice(
        "More than one request in a hundred ends with a 5xx: every expert that was called has"
        " failed, or the gateway itself.",
        (
            (
                "See which status: `sum by (status) (rate(mildroute_requests_total[5m]))`. 502 and"
                " 504: the experts. 503: the last expert that was called was cooling down or"
                " overloaded, or returned 503 itself. 500: an expert's own 500, or an error in the"
                " gateway, which then has a line `... failed: ...` in its log."
            ),
            (
                "See which expert and why: `sum by (expert, reason)"
                " (rate(mildroute_fallbacks_total[5m]))`. [Failure"
                " reasons](codes.md#failure-reasons) explains them."
            ),
            (
                "`misconfigured` means that the provider refuses the gateway's own key, address or"
                " model: a key has run out, or a model was retired. Fix `experts.yaml`"
                " and send SIGHUP; a changed variable needs a restart."
            ),
            (
                "If a provider is unavailable and only one expert is left, add another one to"
                " `experts.yaml`, or raise `failover.max_attempts` if there are more than three."
            ),
        ),
        "One expert that fails must not be enough for this alert. If it was, there is no second one"
        " that can take such requests (`context`, `capabilities`).",
    ),
    "MildrouteOverloaded": Advice(
        "Requests are refused with 503, `overloaded`, because `limits.max_in_flight` (1,024) are in"
        " flight in a process already. Those inside are answered. No other alert sees the refused"
        " ones, for nothing was decided for them.",
        (
            (
                "See what fills it: `mildroute_in_flight` by instance. If one replica is full and"
                " others are not, the load balancer is at fault."
            ),
            (
                "See whether answers take longer than usual: `mildroute_request_seconds` by expert."
                " A provider that hangs keeps requests inside until `failover.timeout` (120"
                " seconds), streams until `failover.first_byte_timeout` (60); take that expert"
                " out of `experts.yaml` and send SIGHUP, or shorten these times in `gateway.yaml`"
                " (a restart)."
            ),
            (
                "If there is more traffic than before, add replicas. With memory to spare, raise"
                " `limits.max_in_flight` (a restart): each request holds its body and, unless it"
                " streams, its answer."
            ),
        ),
        "In-flight requests are rate times seconds of an answer: [capacity](capacity.md#rules). One"
        " client that sends too much is held back by a `requests_per_minute` of its key.",
    ),
    "MildrouteStoreAway": Advice(
        "For two minutes this gateway has kept the limits of keys without the Redis or Valkey that"
        " gateways share. `store.on_failure` decides what clients notice: with `share` each gateway"
        " continues with its part of what was left and then answers 429, with `closed` requests get"
        " 503, with `open` limits do not hold.",
        (
            (
                "See whether one instance or all of them lack it: `mildroute_store_available`. If"
                " one does, the way from that gateway to the store is at fault."
            ),
            (
                "Look at the gateway's log: `the store is away` has the `reason`. A connection that"
                " is refused, or no reply in time: the store is down, or its host is overloaded."
                " `READONLY`: after a failover the gateway has reached a replica; the name in"
                " `store.url` must lead to the primary. `OOM`: the store's memory is full."
                " `MISCONF`: it cannot write to its disk. `NOAUTH`, `WRONGPASS` or `NOPERM`:"
                " password or rights have changed; set the variable of `store.password_env` and"
                " start the gateway again. `LOADING`: it has just started; wait."
            ),
            (
                "Start or repair the store. Gateways look for it four times a second and need no"
                " restart; the log then has `the store responds again`."
            ),
            (
                "Do not delete its entries to free memory. If they are lost, gateways tell the"
                " store what they know: [store outage](fleet.md#store-outage)."
            ),
        ),
        "`sum by (operation) (rate(mildroute_store_errors_total[5m]))` shows whether it has been"
        " failing for longer; `connect` counts attempts to reach it. Critical keys and teams can"
        " have an `on_failure` of their own.",
    ),
    "MildrouteLimitsUnavailable": Advice(
        "For five minutes requests have been refused with 503, `limits_unavailable`: the store of"
        " the limits is away, what the gateway had borrowed is spent, and `on_failure: closed`"
        " applies to these keys, by the settings or by an entry of their own. No other alert sees"
        " the refused requests, for nothing was decided for them.",
        (
            (
                "The same as for MildrouteStoreAway. If that alert is silent, the store comes and"
                " goes: see `mildroute_store_available` over the last hour, and"
                " `mildroute_store_seconds` for calls near 10 ms."
            ),
            (
                "If the store will be away for long, decide whether clients or limits matter more."
                " `store.on_failure: share` (a restart of the gateways) answers clients within"
                " their part of the limits."
            ),
        ),
        "Set `closed` only for keys whose limits must hold at any price: `mildroute keys new NAME"
        " --on-failure closed`.",
    ),
    "MildrouteKeysOld": Advice(
        "This gateway has not been able to read the database of its client keys for more than a"
        " minute. It continues with the keys that it knows: clients are answered, new keys are"
        " refused, and keys that were revoked since are still accepted. A gateway that has started"
        " from a snapshot and has not seen the database yet has an infinite age.",
        (
            (
                "Look at its log: `the keys stay as they are until the database is back`, or at the"
                " start `the keys are those of a snapshot until the database is back`, says why."
            ),
            (
                "Start or repair the database, or the way to it. Gateways look every"
                " `keys_interval` seconds; `the database of the keys is back` follows."
            ),
            (
                "If a key must be shut out now, revoke it once the database is back. Until then"
                " only the network, or stopping the gateways, shuts it out."
            ),
            (
                "Do not restart gateways for this: they would start from a snapshot, which may lack"
                " the changes of its last ten minutes, or not at all without one."
            ),
        ),
        "With a `keys_interval` near a minute or longer this alert fires without a fault; raise its"
        " threshold then. [Keys](keys.md#gateways) says what happens while the database is away.",
    ),
    "MildrouteNoRouter": Advice(
        "This gateway runs without a router: every request that names no expert goes to"
        " `routing.default`, or to the first expert of `experts.yaml`, with the reason"
        ' `passthrough`. `/readyz` says `ready`, with `"router": null`. No metric says whether a'
        " router was expected, so this also fires for a gateway that was started"
        " [without one](../guide/feedback.md#starting-without-a-router) to gather a log: silence it"
        " for those, or leave the rule out.",
        (
            (
                "Clients are answered, at the price and quality of one expert. If that is the"
                " expensive one, the bill grows: see `mildroute_spend_dollars_total`."
            ),
            (
                "Look at the start of its log: `no router: requests are passed through` has"
                " `waiting_for`, the folder or pointer that was not there. A mistyped path, an"
                " empty volume and a pointer that was never published look the same."
            ),
            (
                "Put the router there, or publish it (`mildroute rollout publish`). The gateway"
                " takes it within seconds, without a restart. A path that is wrong needs the right"
                " one and a restart."
            ),
        ),
        "Compare replicas: `count by (digest) (mildroute_router_info)` has one line if all serve"
        " the same router. A router that disappears later does not cause this: the gateway"
        " continues with the one that it has loaded.",
    ),
    "MildrouteExpertDown": Advice(
        "The circuit of this expert has been open for minutes: it fails, and is probed with one"
        " request after each cooldown, which grows from 1 to 60 seconds. Other experts answer in"
        " its place, so clients notice little but the price or the quality.",
        (
            (
                "Nothing has to be done for clients. Look at the provider's status page, or at the"
                " server if it is your own."
            ),
            "Call it by hand at the `base_url` of `experts.yaml`.",
            (
                'If the others cannot bear its load, their rates say so: `reason="rate_limited"` or'
                ' `reason="overloaded"` in `mildroute_fallbacks_total`.'
            ),
        ),
        "It comes back with the first probe that succeeds. A probe is a client's request:"
        " the circuit of an expert that gets no requests is half-open once its cooldown is over,"
        " and the alert ends although it is not known whether the expert has recovered. With"
        " several replicas each has a circuit of its own; the alert shows the worst.",
    ),
    "MildrouteFallbacks": Advice(
        "For ten minutes this expert has failed on more than 5% of all requests. Clients get"
        " answers from the next best, later than usual.",
        (
            'See why: `sum by (reason) (rate(mildroute_fallbacks_total{expert="NAME"}[5m]))`.',
            (
                "`rate_limited`: the provider's rate limit is exceeded. Set `concurrency` for it in"
                " `experts.yaml`, or buy more."
            ),
            (
                "`timeout`: it is slow. `failover.first_byte_timeout` decides how long to wait for"
                " a stream; a shorter one turns waiting into fallbacks."
            ),
            (
                "`hedged`: no expert failed; with `failover.hedge_delay` the next expert was called"
                " as well and was faster. Raise it if that happens too often: both providers may"
                " charge."
            ),
        ),
        "If it continues, take the expert out of `experts.yaml`. The router's other choices stay as"
        " they are.",
    ),
    "MildrouteSlowDecisions": Advice(
        "One decision in twenty takes longer than a quarter of a second. Nearly all of that is the"
        " wait for the encoder.",
        (
            (
                "Look at `mildroute_encoder_queue` and at `rate(process_cpu_seconds_total[5m])`: a"
                " queue that does not empty and a core that is full mean too little processor."
            ),
            "Add replicas. `encoder.threads` helps only where the machine has processors to spare.",
        ),
        "TF-IDF takes a 70th of MiniLM's time, and often serves as well:"
        " [encoders](../guide/encoders.md).",
    ),
    "MildrouteLate": Advice(
        "More than 5% of requests got no decision within `encoder.timeout` and went to the safe"
        " default. They are answered, at the price and quality of that one expert.",
        (
            "The same as for MildrouteSlowDecisions.",
            (
                "Until there is more processor, a longer `encoder.timeout` (a restart) trades time"
                " for decisions."
            ),
        ),
        "`router_timeout` also counts inputs beyond `encoder.max_queue_size`, and batches on"
        " which the encoder failed, which have a line `the encoder failed` in the log. With"
        " `--workers` it also counts requests while the encoder process was away (`encoder process"
        " died`).",
    ),
    "MildrouteFar": Advice(
        "For an hour more than 5% of inputs have been unlike all that the router was trained on."
        " They go to the safe default.",
        ("Nothing at night: this is what the safe default is for.",),
        "Find out what is new (`reason` and, if kept, `text` in the decision log),"
        " [collect](../guide/collecting.md) some of it and fit again:"
        " [retraining](../guide/feedback.md#retraining).",
    ),
    "MildrouteDrift": Advice(
        "The router's opinions over the last 2,000 decisions are spread otherwise than on its"
        ' held-out rows: `of="shares"`, what it would choose; `of="scores"`, how sure it is.',
        ("Nothing at night: answers still come. A change of who asks what is the usual cause.",),
        "Measure before you fit: drift says that inputs have changed, not that decisions are worse."
        " `mildroute costs from-log` says what the experts cost now, and"
        " [feedback](../guide/feedback.md) what to do then.",
    ),
    "MildrouteLogLost": Advice(
        "Lines of the decision log, or of the feedback, could not be written: the disk is full or"
        " gone. Requests are answered as usual, but what was decided for them is not kept. The"
        " gateway's own log has a line `nothing can be written into ...` with the reason.",
        (
            (
                "Free disk space, or repair the disk: `df -h` where `log.folder` is. Writing"
                " resumes automatically, without a restart."
            ),
            (
                "`mildroute log tidy` turns finished files into Parquet, a tenth of their size; it"
                " needs that space first."
            ),
            (
                "Do not restart it for this: the day's spending of keys would be read from a log"
                " that lacks lines."
            ),
        ),
        "Lines that are lost are gone: dollars of keys after the next restart are too low by them,"
        " and `mildroute costs from-log` does not see them. Nothing deletes old files; give the log"
        " a larger disk ([capacity](capacity.md#rules)), or delete finished files of earlier"
        " months, once they are [ingested](keys.md#spend) or shipped if you need them. Keep this"
        " month's files and `spend.json`: after a restart they are what a gateway knows of"
        " `dollars_per_day` and `dollars_per_month`. The file that is being written may be moved"
        " away; a new one begins within a second.",
    ),
    "MildrouteReloadRejected": Advice(
        "A new router or canary, or a new file of experts or keys, was invalid. The gateway keeps"
        " the old one, so a key that was revoked may still be accepted; without its canary, the"
        " router serves alone.",
        (
            (
                "Look at its log: `the artifact was not replaced: ...`, `the canary was not taken:"
                " ...`, `the experts stay as they were: ...` or `the keys stay as they were: ...`"
                " says why, with file and line."
            ),
            "Fix the file, or put the one before back, and send SIGHUP or call `/admin/reload`.",
            (
                "Compare the replicas: `count by (digest) (mildroute_router_info)` has one line if"
                " all serve the same router."
            ),
        ),
        "Write a new router into a folder beside and rename it: a reload in the middle of a copy"
        " is rejected, too.",
    ),
    "MildrouteLoopBlocked": Advice(
        "One wake-up in a hundred of the event loop comes more than a quarter of a second late. All"
        " requests of this process wait for it, streams stutter, and time-outs fire early.",
        (
            (
                "See whether it lacks processor time: `rate(process_cpu_seconds_total[5m])` near 1,"
                " or a container that is throttled. Add replicas, or raise its limit."
            ),
            (
                "See whether bodies are large:"
                ' `rate(mildroute_body_bytes_total{direction="in"}[5m])`. Lower'
                " `limits.max_body_bytes` if no client needs so much."
            ),
            "See whether the disk of the decision log hangs: each line is written on the loop.",
        ),
        "[Capacity](capacity.md) says how many requests a process can bear.",
    ),
    "MildrouteNoSaving": Advice(
        "Over the last day the answers cost more than the baseline expert would have charged for"
        " the same tokens.",
        (
            (
                "See which experts are called: `sum by (expert, reason)"
                " (rate(mildroute_choices_total[1h]))`. Many `pinned` are the clients' own choice,"
                " many `router_timeout` or `out_of_distribution` the safe default's."
            ),
            (
                "Check that prices in `experts.yaml` are today's, and which expert"
                " `mildroute_router_info` names as `baseline`."
            ),
        ),
        "A baseline that is not the most expensive expert may be impossible to undercut. Set"
        " `baseline` to what you would use without a router.",
    ),
}
