[...document.querySelectorAll(".overview li")].map((row) => {
  const strip = row.querySelector("svg").getBoundingClientRect();
  return { gpu: row.dataset.gpu, label: row.querySelector("svg").getAttribute("aria-label"), drawn:
    [...row.querySelectorAll("rect")].map((rect) => { const box = rect.getBoundingClientRect();
      return [getComputedStyle(rect).fill, (box.left - strip.left) / strip.width, box.width / strip.width]; }) };
})
