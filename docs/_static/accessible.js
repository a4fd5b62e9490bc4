// What the theme leaves out for keyboards and screen readers: levels of headings, names of landmarks and links, and a
// way into what scrolls.
document.addEventListener("DOMContentLoaded", () => {
  const each = (selector, change) => document.querySelectorAll(selector).forEach(change);
  each('[role="heading"]:not([aria-level])', (e) => e.setAttribute("aria-level", "2"));
  each("aside.sidebar-drawer", (e) => e.setAttribute("aria-label", "All pages"));
  each("aside.toc-drawer", (e) => e.setAttribute("aria-label", "On this page"));
  each(".content-icon-container", (e) => {
    e.setAttribute("role", "navigation");
    e.setAttribute("aria-label", "About this page");
  });
  each(".sphx-glr-thumbcontainer a", (e) => e.setAttribute("aria-label", e.textContent));
  const reach = () => each("pre, .table-wrapper", (e) => {
    if (e.scrollWidth > e.clientWidth) e.tabIndex = 0;
  });
  reach();
  window.addEventListener("resize", reach);
});
