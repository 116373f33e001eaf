document.querySelectorAll(".overview li").forEach((row) => {
  const [index, verdict, name, since] = row.children;
  index.textContent = "GPU 15"; verdict.textContent = "VERDICT";
  name.firstChild.textContent = "unattributed"; since.firstChild.textContent = "for 120 min";
})
