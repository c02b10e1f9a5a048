// The texts of a page whose contrast to what is behind them is below 4.5:1, or 3:1 from 24 pixels on.
() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const channels = (text) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = text;
    context.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = context.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (front, back) => back.map((each, i) => front[i] * front[3] + each * (1 - front[3]));
  const linear = (value) => (value <= 0.03928 * 255 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement, box = node.getBoundingClientRect(), style = getComputedStyle(node);
    if (!texts.currentNode.data.trim() || !box.width || !box.height || node.closest("svg")) continue;
    if (style.visibility === "hidden" || style.opacity === "0") continue;
    const behind = [];
    for (let each = node; each; each = each.parentElement) behind.unshift(channels(getComputedStyle(each).backgroundColor));
    const back = behind.reduce((below, each) => over(each, below), [255, 255, 255]);
    const light = [luminance(back), luminance(over(channels(style.color), back))].sort((a, b) => a - b);
    const contrast = (light[1] + 0.05) / (light[0] + 0.05);
    if (contrast < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found.push(`${contrast.toFixed(2)} ${texts.currentNode.data.trim()}`);
  }
  return found;
}
