// Widgets ask MathJax 2 for its queue, to typeset their labels. MathJax 3 has none, and
// no label of this book holds a formula.
document.addEventListener("DOMContentLoaded", () => {
  if (window.MathJax) MathJax.Hub ??= { Queue() {} };
});
