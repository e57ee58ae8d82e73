// The page of `virtctl vnc --web`: noVNC on the websocket of the server that the page came from.
import RFB from '../novnc/core/rfb.js';

// All is below a path that nobody else knows; see web.go.
const base = new URL('..', import.meta.url).pathname;

// The token in the address has been used up; a reload goes by the cookie.
history.replaceState(null, '', base);

const element = (id) => document.getElementById(id);
let rfb = null;

function status(text, bad) {
  element('status').textContent = text;
  element('status').className = bad ? 'bad' : '';
  element('connect').hidden = !bad;
}

function connect() {
  status('connecting…', false);
  element('screen').replaceChildren();
  const socket = new WebSocket(`ws://${location.host}${base}screen`);
  socket.binaryType = 'arraybuffer';
  let reason = '';
  socket.addEventListener('close', (event) => { reason = event.reason; });
  rfb = new RFB(element('screen'), socket, { shared: true });
  rfb.focusOnClick = true;
  rfb.background = '#111';
  scale(element('size').getAttribute('aria-pressed') === 'true');
  rfb.addEventListener('connect', () => { status('connected', false); rfb.focus(); });
  rfb.addEventListener('disconnect', () => {
    rfb = null;
    // noVNC may hear of the end before the reason is there.
    setTimeout(() => status(reason || 'the session has ended', true), 0);
  });
}

function scale(fit) {
  element('size').setAttribute('aria-pressed', fit);
  element('size').textContent = fit ? 'Fit' : 'Actual size';
  if (rfb) {
    rfb.scaleViewport = fit;
    rfb.clipViewport = false;
  }
}

// Characters that need Shift on the guest's keyboard, which VNC servers take for an American one.
const shifted = '~!@#$%^&*()_+{}|:"<>?';

function type(text) {
  for (const character of text.replaceAll('\r\n', '\n')) {
    let keysym = character.codePointAt(0);
    if (character === '\n') keysym = 0xff0d;
    else if (character === '\t') keysym = 0xff09;
    else if (keysym > 0xff) keysym |= 0x01000000;
    const shift = /[A-Z]/.test(character) || shifted.includes(character);
    if (shift) rfb.sendKey(0xffe1, 'ShiftLeft', true);
    rfb.sendKey(keysym, null);
    if (shift) rfb.sendKey(0xffe1, 'ShiftLeft', false);
  }
}

element('connect').addEventListener('click', connect);
element('cad').addEventListener('click', () => { if (rfb) { rfb.sendCtrlAltDel(); rfb.focus(); } });
element('size').addEventListener('click', () => { scale(element('size').getAttribute('aria-pressed') !== 'true'); });
element('full').addEventListener('click', () => { element('screen').requestFullscreen(); });
element('paste').addEventListener('click', async () => {
  if (!rfb) return;
  try {
    type(await navigator.clipboard.readText());
  } catch (error) {
    status(`the browser does not give the clipboard: ${error.message}`, false);
  }
  rfb.focus();
});

fetch(`${base}machine`).then((answer) => answer.json()).then((machine) => {
  element('name').textContent = machine.name;
  document.title = machine.name;
});
connect();
