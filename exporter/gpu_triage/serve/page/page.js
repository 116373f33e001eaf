"use strict";
(() => {
  const every = 5000;
  const stops = () => [...document.querySelectorAll("main a, main summary, main .wide")];
  const boxes = () => [...document.querySelectorAll("main .wide")];
  const folds = () => [...document.querySelectorAll("main details")];
  let answered = Date.now();
  async function refresh() {
    if (document.hidden || !getSelection().isCollapsed) return;
    const silent = document.getElementById("silent");
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(every) });
      if (!answer.ok) throw new Error("status " + answer.status);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const id = document.activeElement.id;
      const place = stops().indexOf(document.activeElement);
      const opened = folds().map((fold) => fold.open);
      const scrolled = boxes().map((box) => box.scrollLeft);
      document.querySelector("main").replaceWith(fresh.querySelector("main"));
      boxes().forEach((box, nth) => { box.scrollLeft = scrolled[nth] || 0; });
      folds().forEach((fold, nth) => { fold.open ||= opened[nth]; });
      if (place >= 0) (document.getElementById(id) || stops()[place])?.focus({ preventScroll: true });
      document.title = fresh.title;
      document.querySelector("link[rel=icon]").href = fresh.querySelector("link[rel=icon]").href;
      answered = Date.now();
      silent.hidden = true;
    } catch (error) {
      const age = Math.round((Date.now() - answered) / 1000);
      silent.textContent = "No answer from the exporter for " + age + " s (" + error.message + "): out of date.";
      silent.hidden = false;
    }
  }
  setInterval(refresh, every);
  document.addEventListener("visibilitychange", refresh);
})();
