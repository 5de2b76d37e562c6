// Renews the page when the daemon has something new, and shows times in the reader's zone.
// Without this script the page shows UTC, and loads itself again every minute.
"use strict";
(() => {
  const POLL_MS = 3000;
  const body = document.body;
  const status = document.getElementById("live");
  let version = body.dataset.version;
  let timer = null;
  let isLooking = false;

  const say = (text) => { if (status && status.textContent !== text) status.textContent = text; };

  // times
  const forms = {
    short: { hour: "2-digit", minute: "2-digit" },
    long: { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" },
  };
  const showTimes = (root) => {
    for (const each of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(each.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      const isToday = moment.toDateString() === new Date().toDateString();
      const local = moment.toLocaleString([], isToday ? forms.short : forms.long);
      if (each.dataset.age === undefined) {
        each.title = each.title || each.textContent.trim();
        each.textContent = local;
      } else {
        each.title = local;
      }
    }
  };

  // renewal: replace each part that changed, and keep the focus, the open details and what is typed
  const focusIn = (part) => {
    const active = document.activeElement;
    if (!part.contains(active)) return null;
    return [...part.querySelectorAll("a,button,input,select,summary,[tabindex]")].indexOf(active);
  };
  const replacePart = (old, fresh) => {
    const place = focusIn(old);
    const open = new Set([...old.querySelectorAll("details[open]")].map((each) => each.dataset.name));
    const node = document.importNode(fresh, true);
    for (const each of node.querySelectorAll("details")) each.open = each.open || open.has(each.dataset.name);
    showTimes(node);
    old.replaceWith(node);
    if (place !== null) {
      const targets = node.querySelectorAll("a,button,input,select,summary,[tabindex]");
      if (targets[place]) targets[place].focus({ preventScroll: true });
    }
  };
  const seen = new Map();
  for (const part of document.querySelectorAll("[data-live]")) seen.set(part.id, part.outerHTML);

  const load = async (url) => {
    const answer = await fetch(url, { credentials: "same-origin", cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.text();
  };
  const renew = async () => {
    const fresh = new DOMParser().parseFromString(await load(location.href), "text/html");
    for (const part of fresh.querySelectorAll("[data-live]")) {
      const old = document.getElementById(part.id);
      const text = part.outerHTML;
      if (!old) { location.reload(); return; }
      if (text === seen.get(part.id)) continue;
      replacePart(old, part);
      seen.set(part.id, text);
    }
    document.title = fresh.title;
    version = fresh.body.dataset.version;
  };

  const look = async () => {
    try {
      if (await load("/live") !== version) await renew();
      if (!document.hidden) say("live");
    } catch (error) {
      if (!document.hidden) say("the daemon does not answer: trying again");
    }
    isLooking = false;
    if (!document.hidden) timer = setTimeout(start, POLL_MS);
  };
  const start = () => {
    clearTimeout(timer);
    if (isLooking) return;
    isLooking = true;
    look();
  };

  showTimes(document);
  if (version === undefined) return;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { clearTimeout(timer); say("paused"); } else { start(); }
  });
  if (!document.hidden) start();
})();
