// Says where a table is wider than its place.
const places = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    target.classList.toggle("wide", target.scrollWidth > target.clientWidth);
  }
});
document.querySelectorAll(".scroll").forEach((place) => places.observe(place));
// Sorts a table by the column whose heading is pressed; again, the other way round. Without this
// script the tables are as they were written.
for (const button of document.querySelectorAll("th button")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const body = heading.closest("table").tBodies[0];
    const column = heading.cellIndex;
    const descending = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const sign = descending ? -1 : 1;
    const known = (cell) => cell.dataset.value !== undefined;
    const order = (first, second) => {
      const [a, b] = [first.cells[column], second.cells[column]];
      if (known(a) && known(b)) return sign * (Number(a.dataset.value) - Number(b.dataset.value));
      if (known(a) !== known(b)) return known(a) ? -1 : 1;
      return sign * a.textContent.trim().localeCompare(b.textContent.trim());
    };
    body.append(...[...body.rows].sort(order));
  });
}
