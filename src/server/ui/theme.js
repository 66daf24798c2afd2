// Runs before the first paint, so that a chosen theme does not flash; app.js changes it later.
try {
  const theme = localStorage.getItem("penstock.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be blocked; the system's theme is used then.
}
