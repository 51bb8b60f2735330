/** Arrow keys between messages: up and down in a lane, left and right to its neighbours. */

export function moveFocus(event: KeyboardEvent): void {
  const from = event.target instanceof HTMLElement ? event.target.closest('summary') : null;
  const card = from?.parentElement;
  if (from === null || !card || event.altKey || event.ctrlKey || event.metaKey) return;
  const target = targetOf(card, event.key);
  if (target === undefined) return;
  event.preventDefault();
  target.querySelector('summary')?.focus();
}

function targetOf(card: HTMLElement, key: string): HTMLElement | undefined {
  const cards = [...document.querySelectorAll<HTMLElement>('details.card')];
  const at = cards.indexOf(card);
  const { lane } = card.dataset;
  const isOfLane = (other: HTMLElement): boolean => other.dataset.lane === lane;
  switch (key) {
    case 'ArrowDown':
      return cards.slice(at + 1).find(isOfLane);
    case 'ArrowUp':
      return cards.slice(0, at).findLast(isOfLane);
    case 'ArrowRight':
      return cards[at + 1];
    case 'ArrowLeft':
      return cards[at - 1];
    case 'Home':
      return cards[0];
    case 'End':
      return cards.at(-1);
    default:
      return undefined;
  }
}
