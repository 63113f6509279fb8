// Elements without a framework: made with h(), and lists of them kept in step with what they show,
// so that what is focused or scrolled stays where it is.

type Child = Element | string | number | null | undefined | false;
type Value = string | number | boolean | null | undefined | ((event: never) => void);
type Props = Record<string, Value>;

const kSvg = "http://www.w3.org/2000/svg";

function build(element: Element, props: Props, children: Child[]): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") {
      element.addEventListener(name, value as EventListener);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Element ? child : String(child));
  }
}

export function h(name: string, props: Props = {}, ...children: Child[]): HTMLElement {
  const element = document.createElement(name);
  build(element, props, children);
  return element;
}

export function s(name: string, props: Props = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS(kSvg, name) as SVGElement;
  build(element, props, children);
  return element;
}

export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  build(element, {}, children);
}

// Writes only what is not there already: nothing is laid out anew for nothing.
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function part(element: Element, name: string): HTMLElement {
  return element.querySelector(`.${name}`) as HTMLElement;
}

// Makes the parent's children those of `items`, by their keys: one that was there is kept, and told
// what it shows now.
export function keep<T>(
  parent: Element,
  items: T[],
  key: (item: T) => string,
  make: (item: T) => HTMLElement,
  update: (element: HTMLElement, item: T) => void,
): void {
  const before = new Map<string, HTMLElement>();
  for (const child of parent.children) {
    before.set((child as HTMLElement).dataset.key ?? "", child as HTMLElement);
  }
  let place: Element | null = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = before.get(name);
    before.delete(name);
    if (!element) {
      element = make(item);
      element.dataset.key = name;
    }
    update(element, item);
    if (element === place) {
      place = place.nextElementSibling;
    } else {
      parent.insertBefore(element, place);
    }
  }
  for (const left of before.values()) left.remove();
}
