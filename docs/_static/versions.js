// The list of versions lies one folder above each of them; without a server it cannot be read, and the select keeps the one that it has.
const select = document.getElementById("versions");
if (select && location.protocol !== "file:") {
  const here = select.options[0].text;
  const root = new URL(select.dataset.root || "./", location.href);
  fetch(new URL("../versions.json", root))
    .then((answer) => (answer.ok ? answer.json() : [here]))
    .then((versions) => {
      select.replaceChildren(...versions.map((name) => new Option(name, name, false, name === here)));
      select.addEventListener("change", () => {
        const page = new URL(`../${select.value}/${select.dataset.page}.html`, root);
        fetch(page, { method: "HEAD" }).then((found) => {
          location.href = found.ok ? page : new URL(`../${select.value}/index.html`, root);
        });
      });
    })
    .catch(() => {});
}
