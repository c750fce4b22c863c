// Faults, and instructions for the operator: those that bakeryd reports, or that it does not answer.
import { agedProblem, until, whole } from './words.js';

const levels = { error: 'bad', warning: 'warn', note: 'note' };

// judge returns the faults, the worst first. The key identifies a fault that lasts. shown is the last answer with a report.
export function judge(m, lost, now, shown) {
  if (lost) return [silence(m, lost, now)];
  if (m?.report) {
    return m.report.problems.map((p) => {
      const [text, why, remedy] = agedProblem(p, m.age(now));
      return { level: levels[p.severity], key: `${p.kind} ${p.subject}`, what: sentence(why ? `${text}: ${why}` : text), todo: sentence(remedy) };
    });
  }
  return m?.error ? [away(m.error, shown && `The state shown is of ${whole(shown.diskAge(now))} ago. `)] : [];
}

function silence(m, lost, now) {
  let what = `bakeryd has not answered for ${whole(now - lost.since)}`;
  if (m?.report) {
    const left = m.left(now);
    what += left > 0 ? `. Its lease ends in ${until(left)}: started before then it keeps every lock` : '. Its lease is over by now, unless it still runs';
  }
  // A restart is no fault: it keeps holds.
  const level = m?.report && now - lost.since < 5000 && m.left(now) > m.lease / 2 ? 'warn' : 'bad';
  return { level, key: 'silence', what, todo: 'On its host, run systemctl status bakeryd. If you use ssh -L, check that connection. The page keeps retrying.' };
}

// away is that bakeryd answers, and has no report.
function away(error, age = '') {
  const joining = error.code === 'unavailable';
  return { level: joining ? 'warn' : 'bad', key: 'away', what: joining ? `bakeryd runs, but has not joined the lockspace: ${error.message.replace('not joined to the lockspace: ', '')}` : sentence(error.message), todo: (age ?? '') + sentence(error.hint ?? '') };
}

const sentence = (s) => s.charAt(0).toUpperCase() + s.slice(1);
