// Keeps the parts of a page that are marked data-live up to date. Without it everything works; one has to reload.
"use strict";
(() => {
  const every = 5000;
  const edited = (part) =>
    part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select, button, pre") ||
    [...part.querySelectorAll("input:not([type=hidden]), textarea")].some((field) => field.type === "checkbox" ? field.checked : field.value !== field.defaultValue) ||
    (!getSelection().isCollapsed && part.contains(getSelection().anchorNode));
  const refresh = async () => {
    if (document.hidden) return;
    const status = document.getElementById("live");
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
      if (!answer.ok) throw new Error(answer.status || "your session has ended");
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const now of document.querySelectorAll("[data-live]")) {
        const then = page.getElementById(now.id);
        if (!then || then.innerHTML === now.innerHTML || edited(now)) continue;
        const tops = [...now.querySelectorAll("pre")].map((pre) => pre.scrollTop);
        now.replaceWith(document.adoptNode(then));
        then.querySelectorAll("pre").forEach((pre, i) => { pre.scrollTop = tops[i] || 0; });
      }
      document.title = page.title;
      const made = page.getElementById("live");
      if (status && made) status.textContent = made.textContent.replace("was made", "is live; last looked");
    } catch (e) {
      if (status) status.textContent = "This page is not up to date: the server does not answer.";
    }
  };
  const login = document.querySelector("form.login");
  if (login) { // a link from elsewhere comes without the cookie, also of a session that exists
    const to = login.elements.to.value;
    fetch(to, { redirect: "manual" }).then((answer) => { if (answer.ok) location.replace(to); }).catch(() => {});
  }
  if (!document.querySelector("main [data-live]")) return;
  setInterval(refresh, every);
  document.addEventListener("visibilitychange", refresh);
})();
