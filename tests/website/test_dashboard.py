"""The page of a gateway in a real browser: its looks, its use by hand, and 20 attacks on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mildroute.gateway.config import FailoverConfig, GatewayConfig
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from tests.experts.hostile_server import HostileServer, says, status
from tests.gateway.fakes import FakePredictor
from tests.gateway.running import Running, running, until
from tests.support.records import record
from tests.website.test_pages import OVERFLOWING, WIDER, faults_of

PLAIN = GatewayConfig(failover=FailoverConfig(drain_timeout=1.0, max_rounds=1))
PRICE = {"input": 1, "output": 4}
SIZES = [(390, 844), (1280, 900), (1920, 1080)]
# Each would set a mark if it ran.
RUN = "window.hacked=1"
IMAGE = f'<img src=x onerror="{RUN}">'
SCRIPT = f"<script>{RUN}</script>"
ATTACKS = {
    "image": IMAGE,
    "script": SCRIPT,
    "svg": f'<svg onload="{RUN}">',
    "attribute": f'" autofocus onfocus="{RUN}" x="',
    "link": f'<a href="javascript:{RUN}" id=trap>x</a>',
    "frame": f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    "template": "{{constructor.constructor('" + RUN + "')()}}${" + RUN + "}",
    "style": "<style>body{display:none}</style>",
    "meta": '<meta http-equiv="refresh" content="0;url=/healthz">',
    "base": '<base href="http://127.0.0.1:9/">',
    "form": '<form id="keys-form" action="http://127.0.0.1:9/"><input name="admin-key"></form>',
    "entities": "&lt;script&gt;" + RUN + "&lt;/script&gt;",
    "null": f"\x00<img src=x onerror={RUN}>\u2028\u202e",
}


class Tab:
    """A page of a browser that notes what goes wrong."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.errors: list[str] = []
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: (self.errors.append("dialog"), dialog.dismiss()))
        page.add_init_script(
            "window.refused = []; document.addEventListener('securitypolicyviolation',"
            " event => window.refused.push(event.violatedDirective))"
        )
        page.goto(url)

    def show(self) -> None:
        self.page.wait_for_selector("#live:not([hidden])")

    def ask(self, prompt: str = "What is 2 + 2?", button: str = "#ask") -> str:
        self.page.fill("#prompt", prompt)
        self.page.click(button)
        self.page.wait_for_selector("#rank:not([disabled])")
        return str(self.page.inner_text("#playground-message"))

    def check_nothing_ran(self) -> None:
        assert self.page.evaluate("window.hacked") is None
        assert self.page.evaluate("document.querySelectorAll('main img, iframe, base').length") == 0
        assert self.errors == []
        assert self.page.evaluate("window.refused") == []


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    contexts = []

    def load(url: str, **options: Any) -> Tab:
        contexts.append(browser.new_context(reduced_motion="reduce", **options))
        return Tab(contexts[-1].new_page(), url)

    yield load
    for context in contexts:
        context.close()


def gateway_of(url: str, settings: GatewayConfig = PLAIN, **services: Any) -> Any:
    experts = {name: {"base_url": url, "price": PRICE} for name in ("small", "large")}
    return running(settings, services=services, **experts)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Running]:
    with HostileServer([says("It is 4.", (700, 300))]) as expert, gateway_of(expert.url) as made:
        for _ in range(20):
            made.chat()
        yield made


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size[0]))
def test_the_page_is_legible_named_in_order_and_as_wide_as_the_screen(
    tab: Any, gateway: Running, size: tuple[int, int], scheme: str
) -> None:
    width, height = size
    options = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
    shown = tab(gateway.url, **options)
    shown.show()
    assert shown.ask() == "Done."
    assert shown.page.evaluate(WIDER) <= 0, shown.page.evaluate(OVERFLOWING)
    assert shown.page.locator("h1").count() == 1
    assert faults_of(shown.page) == []
    shown.check_nothing_ran()


def test_the_playground_shows_the_ranking_and_asks_for_real(tab: Any, gateway: Running) -> None:
    shown = tab(gateway.url)
    shown.show()
    assert shown.ask(button="#rank") == "Done."
    cells = shown.page.locator("#ranking-rows tr").first.inner_text().split()
    assert cells == ["small", "0.500", "$0.250", "66.7%"]
    assert "small would answer; reason: router." in shown.page.inner_text("#decision")
    assert not shown.page.is_visible("#answer")
    assert shown.ask() == "Done."
    assert shown.page.inner_text("#answer-text") == "It is 4."
    assert "Expert: small. Reason: router. Cost: $0.00190." in shown.page.inner_text(
        "#answer-facts"
    )


def test_the_playground_works_by_keyboard_alone(tab: Any, gateway: Running) -> None:
    shown = tab(gateway.url)
    shown.show()
    keyboard = shown.page.keyboard
    visited = []
    for _ in range(6):
        keyboard.press("Tab")
        visited.append(shown.page.evaluate("document.activeElement.id"))
        if visited[-1] == "prompt":
            keyboard.type("Hi")
    assert visited[:4] == ["prompt", "quality", "rank", "ask"]
    shown.page.focus("#rank")
    keyboard.press("Enter")
    shown.page.wait_for_selector("#ranking:not([hidden])")


def test_figures_follow_what_is_served_while_the_page_is_open(tab: Any, gateway: Running) -> None:
    shown = tab(gateway.url)
    shown.show()
    assert "cheaper than small" in shown.page.inner_text("#savings-sentence")
    requests = "() => document.getElementById('requests').textContent.match(/\\d+/)[0]"
    before = int(shown.page.evaluate(requests))
    gateway.chat()
    # The policy lets nothing evaluate a string inside the page, not even this test.
    until(lambda: int(shown.page.evaluate(requests)) > before, 20.0)


def test_the_admin_key_stays_in_the_tab_and_out_of_addresses(
    tab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERATOR", "operator-secret")
    key = new_key()
    store = KeyStore([(hash_key(key), APIClient("team-a"))])
    settings = replace(PLAIN, admin_key_env="OPERATOR")
    with (
        HostileServer([says("It is 4.", (700, 300))]) as expert,
        gateway_of(expert.url, settings, key_store=store) as gateway,
    ):
        shown = tab(gateway.url)
        sent: list[str] = []
        shown.page.on("request", lambda request: sent.append(request.url))
        shown.page.wait_for_selector("#admin-key:visible")
        for typed, message in (("wrong", "This is not the admin key."), ("", "")):
            shown.page.fill("#admin-key", typed or "operator-secret")
            shown.page.click("#keys-form [type=submit]")
            if message:
                shown.page.wait_for_selector(f"#connection:text-is({message!r})")
        shown.show()
        assert "this key" in shown.ask() or "a key of this gateway" in shown.ask()
        shown.page.fill("#client-key", key)
        shown.page.click("#keys-form [type=submit]")
        assert shown.ask() == "Done."
        assert not any("secret" in url or key in url for url in (*sent, shown.page.url))
        assert shown.page.context.cookies() == []
        assert shown.page.evaluate("localStorage.length") == 0
        assert shown.page.input_value("#admin-key") == ""
        shown.page.click("#forget")
        shown.page.wait_for_selector("#live", state="hidden")
        assert shown.page.evaluate("sessionStorage.length") == 0


# Attacks: whatever comes from outside is shown as text.


@pytest.mark.parametrize("attack", ATTACKS)
def test_markup_in_prompt_and_answer_is_text(tab: Any, attack: str) -> None:
    text = ATTACKS[attack]
    with HostileServer([says(text, (7, 3))]) as expert, gateway_of(expert.url) as gateway:
        shown = tab(gateway.url)
        shown.show()
        assert shown.ask(text) == "Done."
        shown.page.wait_for_timeout(100)
        wanted = text.replace("\x00", "\ufffd") if "\x00" in text else text
        assert shown.page.evaluate("document.getElementById('answer-text').textContent") in {
            text,
            wanted,
        }
        assert shown.page.locator("#answer-text *").count() == 0
        shown.check_nothing_ran()


def test_markup_in_names_of_experts_keys_and_routers_is_text(tab: Any) -> None:
    names = {f"small {IMAGE}": "", f"large {SCRIPT}": ""}
    with HostileServer([says("4", (7, 3))]) as expert:
        predictor = FakePredictor(*names)
        predictor.digest = SCRIPT
        urls = {name: {"base_url": expert.url, "price": PRICE} for name in names}
        with running(PLAIN, predictor, **urls) as gateway:
            gateway.services.metrics.record_request(record(key=IMAGE, served_by=SCRIPT))
            gateway.services.metrics.record_fallback(f"small {IMAGE}", IMAGE)
            gateway.services.metrics.record_decision(None, SCRIPT, 0.0)
            shown = tab(gateway.url)
            shown.show()
            assert shown.ask() == "Done."
            shown.page.wait_for_timeout(100)
            for section in ("#expert-rows", "#ranking-rows", "#answer-facts"):
                assert "onerror" in shown.page.inner_text(section)
            assert RUN in shown.page.inner_text("#requests")
            shown.check_nothing_ran()


def test_markup_in_errors_is_text(tab: Any) -> None:
    body = b'{"error": {"message": "%b"}}' % IMAGE.replace('"', "'").encode()
    with (
        HostileServer([status(400, {"Content-Type": "text/html"}, body)]) as expert,
        gateway_of(expert.url) as gateway,
    ):
        shown = tab(gateway.url)
        shown.show()
        assert "onerror" in shown.ask()
        shown.page.wait_for_timeout(100)
        shown.check_nothing_ran()


def test_the_policy_stops_a_script_that_got_in_nevertheless(tab: Any, gateway: Running) -> None:
    shown = tab(gateway.url)
    shown.show()
    shown.page.evaluate(
        """image => {
            const script = document.createElement('script');
            script.textContent = 'window.hacked = 1';
            document.body.append(script);
            document.body.insertAdjacentHTML('beforeend', image);
        }""",
        IMAGE,
    )
    until(lambda: len(shown.page.evaluate("window.refused")) >= 2)
    assert shown.page.evaluate("window.hacked") is None
    send = "fetch('http://127.0.0.1:9/', {mode: 'no-cors'}).then(() => 'sent', () => 'refused')"
    assert shown.page.evaluate(send) == "refused"


# Attacks of another website, in the browser of the operator.


@pytest.fixture
def website(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(tmp_path))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # Another site than 127.0.0.1.
    yield tmp_path, f"http://localhost:{server.server_port}/index.html"
    server.shutdown()
    server.server_close()


def test_another_website_cannot_frame_read_or_use_the_gateway(
    tab: Any, website: tuple[Path, str]
) -> None:
    folder, address = website
    folder.joinpath("index.html").write_text("<!doctype html><title>x</title><body>")
    with HostileServer([says("4", (7, 3))]) as expert, gateway_of(expert.url) as gateway:
        page = tab(address).page
        framed = page.evaluate(
            """url => new Promise(resolve => {
                const frame = document.createElement('iframe');
                frame.onload = () => resolve(frame.contentDocument === null ? 'other' : 'own');
                frame.src = url;
                document.body.append(frame);
            })""",
            gateway.url,
        )
        assert framed == "other"
        page.wait_for_timeout(200)
        assert page.frames[-1].url.startswith("chrome-error:")
        read = "url => fetch(url).then(() => 'read', () => 'refused')"
        for path in ("/status", "/ui/page.js"):
            assert page.evaluate(read, gateway.url + path) == "refused"
        load = """url => new Promise(resolve => {
            const script = document.createElement('script');
            script.onload = () => resolve('loaded');
            script.onerror = () => resolve('refused');
            script.src = url;
            document.body.append(script);
        })"""
        assert page.evaluate(load, gateway.url + "/status") == "refused"
        assert page.evaluate(load, gateway.url + "/ui/page.js") == "refused"
        post = """url => fetch(url, {method: 'POST', mode: 'no-cors', body:
            '{"model": "mildroute", "messages": [{"role": "user", "content": "Hi"}]}'})
            .then(() => 'sent', () => 'refused')"""
        page.evaluate(post, gateway.url + "/v1/chat/completions")
        until(lambda: rejections(gateway) >= 1)
        assert expert.calls == []


def rejections(gateway: Running) -> float:
    value = gateway.services.metrics.registry.get_sample_value
    return value("mildroute_rejected_total", {"status": "403", "code": "cross_site"}) or 0.0
