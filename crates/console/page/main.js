// The frame: session, navigation, connection state; each page is a module.

import { h, render } from './dom.js';
import * as api from './api.js';
import { whyPage } from './why.js';
import { mapPage } from './map.js';
import { playgroundPage } from './playground.js';
import { simulatePage } from './simulate.js';
import { resourcesPage } from './resources.js';

const PAGES = [
  { path: 'why', title: 'Why pending', page: whyPage },
  { path: 'map', title: 'Map', page: mapPage },
  { path: 'playground', title: 'Playground', page: playgroundPage },
  { path: 'simulate', title: 'Simulate', page: simulatePage },
  { path: 'resources', title: 'Resources', page: resourcesPage },
];

const app = document.getElementById('app');
let info = null;
let infoError = null;
let current = null; // { entry, dispose }
let main = null;

const savedTheme = localStorage.getItem('celplane-theme');
if (savedTheme) document.documentElement.dataset.theme = savedTheme;

function toggleTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = isDark ? 'light' : 'dark';
  localStorage.setItem('celplane-theme', root.dataset.theme);
  window.dispatchEvent(new Event('themechange'));
}

/** The parts of the address behind the `#`, decoded. */
export function route() {
  return location.hash.replace(/^#\/?/, '').split('/').filter(Boolean).map(decodeURIComponent);
}
/** The address of a page. */
export const link = (...parts) => '#/' + parts.map(encodeURIComponent).join('/');

function frame() {
  const [name] = route();
  const entry = PAGES.find((it) => it.path === name) || PAGES[0];
  document.title = `${entry.title} · Celplane console`;
  render(app,
    h('header', { class: 'top' },
      h('a', { class: 'brand', href: '#/why', 'aria-label': 'Celplane console' }, h('img', { src: '/icon.svg', alt: '', width: 26, height: 26 }), h('span', null, 'Celplane')),
      h('nav', { 'aria-label': 'Pages' }, PAGES.map((it) => h('a', { href: link(it.path), 'aria-current': it === entry ? 'page' : undefined }, it.title))),
      h('div', { class: 'who' },
        stateBadge(),
        info ? h('span', { class: 'cluster', title: `${info.server}\nKubernetes ${info.kubernetes}\nUser ${info.user || 'unknown'}` },
          h('span', null, info.server.replace(/^https?:\/\//, '')), h('span', { class: 'dim' }, info.user || '')) : null,
        h('button', { class: 'icon-button', onclick: toggleTheme, 'aria-label': 'Switch between light and dark', title: 'Light or dark' }, icon('M8 1.5a6.5 6.5 0 1 0 0 13V1.5Z', 'M8 1.5a6.5 6.5 0 0 1 0 13')),
        h('button', { class: 'icon-button', onclick: api.endSession, 'aria-label': 'End session', title: 'End session' }, icon(null, 'M8 2v6M4.6 4.2a5.2 5.2 0 1 0 6.8 0')))),
    h('main', { id: 'content', tabindex: '-1', opaque: true, key: 'main', onmount: (node) => { main = node; show(); } }));
  showCurrent();
}

const icon = (fill, stroke) => h('svg', { viewBox: '0 0 16 16', width: '16', height: '16', 'aria-hidden': 'true' },
  fill ? h('path', { d: fill, class: 'i-fill' }) : null, stroke ? h('path', { d: stroke, class: 'i-line' }) : null);

/** On a narrow screen the row of pages is longer than the screen. */
function showCurrent() {
  const nav = app.querySelector('nav');
  const at = nav && nav.querySelector('[aria-current]');
  if (at) nav.scrollLeft = at.offsetLeft - nav.offsetLeft - 40;
}

function stateBadge() {
  const offline = api.state === 'offline';
  return h('span', { class: `live ${offline || infoError ? 'off' : ''}`, role: 'status' }, offline ? 'Reconnecting' : infoError ? 'No cluster' : 'Live');
}

function show() {
  if (!main) return;
  const [name, ...rest] = route();
  const entry = PAGES.find((it) => it.path === name) || PAGES[0];
  if (current && current.entry === entry) { current.update(rest); return; }
  if (current) current.dispose();
  render(main);
  const page = entry.page(main, rest, { info: () => info, link, route });
  current = { entry, update: page.update, dispose: page.dispose };
}

function closed(title, text) {
  if (current) { current.dispose(); current = null; }
  main = null;
  document.title = 'Celplane console';
  render(app, h('main', { class: 'closed', id: 'content', key: 'closed' },
    h('img', { src: '/icon.svg', alt: '', width: 56, height: 56 }),
    h('h1', null, title), h('p', null, text),
    h('p', { class: 'dim' }, 'In a terminal: ', h('code', null, 'celplane console'), '. Links are valid once, and for one browser tab.')));
}

async function loadInfo() {
  try { info = await api.info(); infoError = null; } catch (error) { infoError = error; }
  if (api.state === 'ended') return;
  frame();
  if (infoError) setTimeout(loadInfo, 3000);
}

async function start() {
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (code) {
    // The code must not stay in the history.
    history.replaceState(null, '', location.pathname + '#/why');
    try { await api.exchange(code); } catch (error) {
      if (!api.hasSession()) {
        closed(error.reason === 'WrongCode' ? 'This link has been used' : 'The console does not answer',
          error.reason === 'WrongCode' ? 'The code in the link is wrong or was used before. The terminal shows a fresh link.' : error.message);
        return;
      }
    }
  }
  if (!api.hasSession()) { closed('No session', 'Open the link that the console printed: it holds a code that opens this page once.'); return; }
  frame();
  loadInfo();
}

api.onState((state) => {
  if (state === 'ended') closed('The session has ended', 'Sessions end after an hour without use, after twelve hours, or when the console stops.');
  else if (main) { frame(); if (state === 'offline') setTimeout(loadInfo, 1500); }
});
window.addEventListener('hashchange', () => {
  if (/code=/.test(location.hash)) { location.reload(); return; }
  if (api.hasSession() && main) { frame(); show(); }
});
window.addEventListener('unhandledrejection', (event) => { if (event.reason && (event.reason.name === 'AbortError' || event.reason.status === 401)) event.preventDefault(); });
start();
