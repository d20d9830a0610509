// Videos of evaluations: a list, and a player that shows the newest until another is chosen.

import { count, element, score } from "./words.js";

export class Films {
  constructor(section) {
    this.section = section;
    this.player = section.querySelector("video");
    this.list = section.querySelector("div.films");
    this.chosen = null;
  }

  // Rows [number, steps, mean return], the newest first.
  show(videos) {
    this.section.hidden = !videos.length;
    const known = videos.map(([number]) => number).join();
    if (!videos.length || this.list.dataset.known === known) return;
    const wasNewest = this.chosen === null || this.list.firstChild?.dataset.number === String(this.chosen);
    this.list.dataset.known = known;
    this.list.replaceChildren(...videos.map(([number, steps, mean]) => {
      const button = element("button", { type: "button", "data-number": number }, `${score(mean)} `,
        element("span", { class: "quiet" }, `at step ${count(steps)}`));
      button.addEventListener("click", () => { this.choose(number); this.player.play(); });
      return button;
    }));
    if (wasNewest && this.player.paused) this.choose(videos[0][0]);
    else this.mark();
  }

  choose(number) {
    this.chosen = number;
    this.player.src = `video/${number}`;
    this.mark();
  }

  mark() {
    for (const button of this.list.children) {
      button.setAttribute("aria-pressed", String(button.dataset.number === String(this.chosen)));
    }
  }
}
