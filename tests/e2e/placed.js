(() => {
  const box = (element) => { const { left, top, right, bottom } = element.getBoundingClientRect();
    return { left, top, right, bottom }; };
  const all = (selector) => [...document.querySelectorAll(selector)];
  const text = (element) => { const range = document.createRange(); range.selectNodeContents(element);
    return box(range); };
  return {
    rows: all(".overview li").map((row) => ({ row: box(row), parts: [...row.children].map((part) =>
      part.matches("a") ? text(part) : box(part.matches("svg, .chip") ? part : part.firstElementChild)) })),
    width: document.documentElement.clientWidth, height: window.innerHeight,
    page: document.documentElement.scrollWidth,
    beyond: all("main *").filter((each) => !each.closest("svg") && !each.closest(".unseen") &&
      (box(each).right > document.documentElement.clientWidth || each.scrollWidth > each.clientWidth + 1)
      && getComputedStyle(each).display !== "inline").map((each) => each.outerHTML.slice(0, 80)),
  };
})()
