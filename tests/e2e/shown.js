(() => {
  const of = (element, ...names) => Object.fromEntries(names.map((name) => [name, element.dataset[name]]));
  const all = (selector) => [...document.querySelectorAll(selector)];
  return {
    top: of(document.getElementById("verdict"), "state", "verdict"),
    gpus: all("tr[data-gpu]").map((row) => of(row, "gpu", "bottleneck", "verdict", "findings")),
    overview: all("li[data-gpu]").map((row) => of(row, "gpu", "bottleneck", "verdict")),
    findings: all("li[data-code]").map((item) => ({
      ...of(item, "code", "subject", "severity"), measured: item.querySelector(".measured").textContent,
      runbook: item.querySelector("a")?.href ?? null })),
    width: document.documentElement.scrollWidth,
    windowWidth: window.innerWidth,
    clipped: all("main p, main dd, main h1, main h2").filter((each) => each.scrollWidth > each.clientWidth + 1).length,
    simulated: document.querySelector(".simulated") !== null,
    failing: all("tr[data-collector]").filter((row) => !["ok"].includes(row.dataset.state)).length,
  };
})()
