// What misleads the reader of a drawn dashboard: cells that are not their label, links to nowhere, cut texts.
import { FieldType, formattedValueToString } from '@grafana/data';
import { sceneGraph } from '@grafana/scenes';

const LIKE_NUMBERS = ['13.0', '0324018045603', '7e10', '1e5', '0x10', 'true', '2024-01-01', '-', ' 5 '];

function fieldsOf(panel) {
  return panel.applyFieldConfig(sceneGraph.getData(panel).state.data).series.flatMap(({ fields }) => fields);
}

/** Columns of labels that show another text than the label. */
export function mistold(panel) {
  const columns = panel.state.pluginId === 'table' ? fieldsOf(panel).filter(({ type }) => type === FieldType.string) : [];
  return columns.flatMap((field) =>
    LIKE_NUMBERS.map((label) => [label, formattedValueToString(field.display(label))])
      .filter(([label, shown]) => label !== shown)
      .map(([label, shown]) => `${panel.state.title}: ${field.name} "${label}" is shown as "${shown}"`)
  );
}

/** Links of the first row with variables that are not known, or without a host. */
export function misled(panel) {
  return fieldsOf(panel)
    .filter(({ type, values }) => type !== FieldType.time && values.length)
    .flatMap((field) => field.getLinks?.({ valueRowIndex: 0 }) ?? [])
    .filter(({ href }) => /[$](\{|%7B)|undefined|var-instance=(&|$)/.test(href))
    .map(({ href }) => `${panel.state.title}: a link leads to ${href}`);
}

const within = (text, tile) => {
  const { top, right, bottom } = tile.getBoundingClientRect();
  return text.right <= right + 1 && text.bottom <= bottom + 1 && text.top >= top - 1;
};
const onScreen = ({ top, bottom, width }) => width > 0 && top < window.innerHeight && bottom > 0;

const FIRST_SCREEN = 900;

/** Cells, headers and tiles of the first screen that are narrower than their text; legends and tables than theirs. */
export function cut() {
  const found = [];
  const texts = document.createTreeWalker(document.getElementById('root'), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    const text = range.getBoundingClientRect();
    let frame = texts.currentNode.parentElement;
    while (frame && getComputedStyle(frame).overflowX === 'visible') {
      frame = frame.parentElement;
    }
    const inColumn = texts.currentNode.parentElement.closest('[role="cell"], [role="columnheader"]');
    const clips = frame && ['hidden', 'clip'].includes(getComputedStyle(frame).overflowX);
    // With an ellipsis, the text itself ends in time.
    if (inColumn && clips && onScreen(text) && (text.right > frame.getBoundingClientRect().right + 0.05 || frame.scrollWidth > frame.clientWidth)) {
      found.push(`cut at ${Math.round(frame.getBoundingClientRect().width)} pixels: ${texts.currentNode.data}`);
    }
    // On a phone, and below the first screen, tables may be scrolled.
    const scrolled = inColumn ? window.innerWidth > 1000 && text.top < FIRST_SCREEN && inColumn.closest('[role="table"]') : texts.currentNode.parentElement.closest('table')?.parentElement;
    if (scrolled && onScreen(text) && text.right > scrolled.getBoundingClientRect().right + 1) {
      found.push(`beyond its ${inColumn ? 'table' : 'legend'}: ${texts.currentNode.data}`);
    }
    const tile = texts.currentNode.parentElement.closest('[style*="position: absolute"]');
    if (tile && !tile.contains(frame) && onScreen(text) && !within(text, tile)) {
      found.push(`beyond its tile: ${texts.currentNode.data}`);
    }
  }
  return found;
}
