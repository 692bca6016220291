"use strict";
(() => {
  const find = (selector) => document.querySelector(selector);

  // A day that is wider than the screen shows the hour in question, which the server tells as a share of the day.
  for (const day of document.querySelectorAll("[data-hour]")) {
    day.scrollLeft = day.dataset.hour * day.scrollWidth - day.clientWidth / 2;
  }

  // Live: the server says that something changed; the page asks for itself again and takes over what differs.
  const refresh = async () => {
    try {
      const answer = await fetch(location.href);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!fresh.querySelector("[data-live]")) return; // an error, of a proxy or of the server: the page stays as it is
      const here = (element) => element?.id && document.getElementById(element.id);
      for (const now of fresh.querySelectorAll("[data-live]")) {
        const old = here(now);
        if (!old) {
          const before = here(now.previousElementSibling), after = here(now.nextElementSibling);
          if (before) before.after(now.cloneNode(true));
          else if (after) after.before(now.cloneNode(true));
          else return location.reload();
        } else if (now.innerHTML !== old.innerHTML && !old.contains(document.activeElement)) {
          const open = [...old.querySelectorAll("details")].map((each) => each.open);
          const places = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
          old.innerHTML = now.innerHTML;
          old.querySelectorAll("details").forEach((each, n) => { each.open = open[n] || false; });
          old.querySelectorAll(".scroll").forEach((each, n) => { each.scrollLeft = places[n] || 0; });
        }
      }
      for (const old of document.querySelectorAll("[data-live]")) if (!fresh.getElementById(old.id)) old.remove();
    } catch { /* the next change asks again */ }
  };
  if (window.EventSource && find("[data-live]")) {
    let timer, stream;
    const soon = () => { timer = 0; refresh(); };
    const lost = document.documentElement.classList;
    const connect = () => {
      const { base, seen } = document.documentElement.dataset; // what has changed since this page was made is told
      stream = new EventSource(`${base}live?seen=${seen}`);
      // A timer that runs is left alone: a store that keeps changing would put the refresh off for ever.
      stream.addEventListener("changed", () => { timer ||= setTimeout(soon, document.hidden ? 15000 : 300); });
      // While there is no connection the page says so; afterwards it may have missed a change.
      stream.addEventListener("error", () => {
        lost.add("lost");
        if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 15000); // an answer that is no stream
      });
      stream.addEventListener("open", () => {
        if (lost.contains("lost")) timer ||= setTimeout(soon, 300);
        lost.remove("lost");
      });
    };
    connect();
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && timer) { clearTimeout(timer); soon(); }
    });
    addEventListener("pagehide", () => stream.close());
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  }

  // Keys: / search, g and a letter for a page, j and k for rows, ? for help; none of them inside a field.
  const help = () => {
    const box = document.createElement("dialog");
    const line = (keys, text) => {
      const row = document.createElement("p");
      row.append(...keys.map((key) => Object.assign(document.createElement("kbd"), { textContent: key })), ` ${text}`);
      box.append(row);
    };
    line(["/"], "search");
    document.querySelectorAll("nav a").forEach((a) => line(["g", a.dataset.key], a.textContent));
    line(["j", "k"], "next and previous row");
    line(["Esc"], "close");
    box.addEventListener("close", () => box.remove());
    document.body.append(box);
    box.showModal();
  };
  let began = 0;
  addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key;
    if (Date.now() - began < 1000) {
      began = 0;
      find(`nav a[data-key="${CSS.escape(key)}"]`)?.click();
    } else if (key === "/" && find("input[type=search]")) {
      event.preventDefault();
      find("input[type=search]").focus();
    } else if (key === "g") {
      began = Date.now();
    } else if (key === "?") {
      help();
    } else if (key === "j" || key === "k") {
      const rows = [...document.querySelectorAll("tbody a")];
      const next = rows[rows.indexOf(document.activeElement) + (key === "j" ? 1 : -1)];
      (next || rows[0])?.focus();
    }
  });
})();
