package eviction

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"jettison/stats"
)

// Saved is what a Manager knows that a restart must not lose: the evictions that are not over, who was killed and did not die, who
// was evicted lately, and what the breaker has counted. Since when thresholds are met and conditions hold is not in it: the next
// look tells what is met, and that it was so without a break nobody knows. Times are absolute.
type Saved struct {
	Pending []SavedPending `json:"pending,omitempty"`
	Aside   []SavedAside   `json:"setAside,omitempty"`
	Evicted []SavedEvicted `json:"evicted,omitempty"`
	Futile  map[string]int `json:"futile,omitempty"` // evictions in a row that did not help, by what was short
}

// SavedPending is an eviction whose effect is not known yet.
type SavedPending struct {
	Eviction SavedEviction `json:"eviction"`
	Level    uint64        `json:"level"` // available when it began, in the signal's unit
	Died     bool          `json:"died,omitempty"`
	Until    time.Time     `json:"until,omitzero"` // of a dead one: what it returns is awaited
	Cleaned  bool          `json:"cleaned,omitempty"`
	Ended    time.Time     `json:"ended,omitzero"`
}

// SavedEviction is an Eviction as a file holds it: without what was measured of the pod.
type SavedEviction struct {
	Pod                SavedPod          `json:"pod"`
	Signal             stats.Signal      `json:"signal"`
	Hard               bool              `json:"hard,omitempty"`
	GracePeriodSeconds int64             `json:"gracePeriodSeconds"`
	Reason             string            `json:"reason,omitempty"`
	Message            string            `json:"message,omitempty"`
	Annotations        map[string]string `json:"annotations,omitempty"`
	Disruption         bool              `json:"disruption,omitempty"`
	Returns            uint64            `json:"returns,omitempty"` // in the signal's unit; 0: unknown
}

// SavedPod is who a victim is: enough to tell it from a pod that has its UID now.
type SavedPod struct {
	UID        string         `json:"uid"`
	Namespace  string         `json:"namespace,omitempty"`
	Name       string         `json:"name,omitempty"`
	QOSClass   stats.QOSClass `json:"qos,omitempty"`
	Cgroup     string         `json:"cgroup,omitempty"` // path below the root; empty: none was found
	CgroupDev  uint64         `json:"cgroupDev,omitempty"`
	CgroupIno  uint64         `json:"cgroupIno,omitempty"`
	SandboxIDs []string       `json:"sandboxIds,omitempty"` // newest first
}

// SavedAside is a pod that was killed and did not die.
type SavedAside struct {
	UID   string    `json:"uid"`
	Until time.Time `json:"until"`
	Times int       `json:"times"` // in a row
}

// SavedEvicted is a pod that died.
type SavedEvicted struct {
	UID   string    `json:"uid"`
	Times int       `json:"times"`
	Last  time.Time `json:"last"`
}

// Bounds of what is saved and taken back. A node has a few hundred pods and evicts one at a time.
const (
	maxPending    = 128
	maxRemembered = 1024 // pods set aside, and pods evicted
	maxSandboxes  = 64
	maxName       = 253 // k8s.io/apimachinery/pkg/util/validation DNS1123SubdomainMaxLength
	maxPath       = 4096
	maxMessage    = 4096
	maxTimes      = 1000
	maxSetAsides  = 5         // after so many the time does not grow any more
	maxSavedGrace = 24 * 3600 // seconds
)

// kindNames name what is short in a file, by kind.
var kindNames = [kinds]string{"memory", "swap", "pids", "bytes", "inodes", "memoryPressure", "ioPressure", "cpuPressure"}

// Save is what Resume needs. It shares nothing with the manager.
func (m *Manager) Save() Saved {
	var s Saved
	for _, p := range m.pending[max(0, len(m.pending)-maxPending):] {
		s.Pending = append(s.Pending, SavedPending{
			Eviction: SaveEviction(&p.e), Level: p.level, Died: p.died, Until: p.until.Round(0), Cleaned: p.cleaned, Ended: p.ended.Round(0),
		})
	}
	for uid, a := range m.aside {
		s.Aside = append(s.Aside, SavedAside{UID: uid, Until: a.until.Round(0), Times: a.times()})
	}
	slices.SortFunc(s.Aside, func(x, y SavedAside) int { return cmp.Or(y.Until.Compare(x.Until), cmp.Compare(x.UID, y.UID)) })
	s.Aside = s.Aside[:min(len(s.Aside), maxRemembered)]
	for uid, e := range m.evicted {
		s.Evicted = append(s.Evicted, SavedEvicted{UID: uid, Times: e.times, Last: e.last.Round(0)})
	}
	slices.SortFunc(s.Evicted, func(x, y SavedEvicted) int { return cmp.Or(y.Last.Compare(x.Last), cmp.Compare(x.UID, y.UID)) })
	s.Evicted = s.Evicted[:min(len(s.Evicted), maxRemembered)]
	for k, n := range m.futile {
		if n > 0 {
			if s.Futile == nil {
				s.Futile = map[string]int{}
			}
			s.Futile[kindNames[k]] = n
		}
	}
	return s
}

// times is how often in a row a pod was set aside, as far as it counts.
func (a setAside) times() int {
	n := 1
	for d := setAsideFirst; d < a.next && n < maxSetAsides; d = min(2*d, setAsideMax) {
		n++
	}
	return n
}

// Resume takes back what a manager before this one has saved. The manager must not have seen anything yet. What cannot be true is
// dropped or put right, each with one error that says why; nobody is held up longer by it than by an eviction that began now. alive are
// the evictions whose pods were not known to be dead: others wait for them, so that Done has to be told of each one.
func (m *Manager) Resume(now time.Time, s Saved) (alive []Eviction, dropped []error) {
	drop := func(format string, args ...any) { dropped = append(dropped, fmt.Errorf(format, args...)) }
	for i := range s.Pending {
		if len(m.pending) == maxPending {
			drop("%d evictions too many", len(s.Pending)-i)
			break
		}
		p, err := m.resume(now, &s.Pending[i], drop)
		if err != nil {
			drop("an eviction: %w", err)
			continue
		}
		m.pending = append(m.pending, p)
		if !p.died {
			alive = append(alive, p.e)
		}
	}
	for i, a := range s.Aside {
		if len(m.aside) == maxRemembered {
			drop("%d pods set aside too many", len(s.Aside)-i)
			break
		}
		if err := checkWord("a UID", a.UID); err != nil || a.Times < 1 {
			drop("a pod set aside: %w", cmp.Or(err, fmt.Errorf("%d times", a.Times)))
			continue
		}
		back := setAside{until: a.Until, next: setAsideFirst}
		for range min(a.Times, maxSetAsides) - 1 {
			back.next = min(2*back.next, setAsideMax)
		}
		if back.until.After(now.Add(back.next)) {
			drop("pod %s is set aside until %s, which is too far: for %v from now", a.UID, a.Until.Format(time.RFC3339), back.next)
			back.until = now.Add(back.next)
		}
		m.aside[a.UID] = back
	}
	for i, e := range s.Evicted {
		if len(m.evicted) == maxRemembered {
			drop("%d evicted pods too many", len(s.Evicted)-i)
			break
		}
		if err := checkWord("a UID", e.UID); err != nil || e.Times < 1 {
			drop("an evicted pod: %w", cmp.Or(err, fmt.Errorf("%d times", e.Times)))
			continue
		}
		if e.Last.After(now) {
			e.Last = now
		}
		m.evicted[e.UID] = evicted{times: min(e.Times, maxTimes), last: e.Last}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Futile)) {
		k := slices.Index(kindNames[:], name)
		if k < 0 || s.Futile[name] < 0 {
			drop("what the breaker counted: %d of %.64q", s.Futile[name], name)
			continue
		}
		m.futile[k] = min(s.Futile[name], breakerLimit)
	}
	return alive, dropped
}

// resume makes one eviction of what was saved of it.
func (m *Manager) resume(now time.Time, s *SavedPending, say func(string, ...any)) (*pending, error) {
	e, err := s.Eviction.Eviction()
	if err != nil {
		return nil, err
	}
	uid := e.Pod.PodRef.UID
	if slices.ContainsFunc(m.pending, func(p *pending) bool { return p.e.Pod.PodRef.UID == uid }) {
		return nil, fmt.Errorf("pod %s comes twice", uid)
	}
	if !e.hard && !e.Local() {
		e.GracePeriodSeconds = max(min(e.GracePeriodSeconds, m.config.MaxPodGracePeriodSeconds), hardGrace)
	}
	p := &pending{e: e, level: s.Level, died: s.Died, cleaned: s.Cleaned, until: s.Until, ended: s.Ended}
	if p.level > implausible { // as if nothing had been left: so nothing is worse than that
		say("the eviction of pod %s: a number that cannot be true", uid)
		p.level = 0
	}
	switch limit := now.Add(settleLimit); {
	case !p.died:
		p.until = time.Time{}
	case p.until.After(limit):
		say("the eviction of pod %s is to return something until %s, which is too far: for %v from now", uid, p.until.Format(time.RFC3339), settleLimit)
		p.until = limit
	case p.until.IsZero():
		p.until = now
	}
	if p.ended.After(now) { // a clock that was set back: no reading would ever be newer
		p.ended = now
	}
	return p, nil
}

// SaveEviction is an eviction as a file holds it. It shares nothing with it.
func SaveEviction(e *Eviction) SavedEviction {
	p := &e.Pod
	return SavedEviction{
		Pod: SavedPod{
			UID: p.PodRef.UID, Namespace: p.PodRef.Namespace, Name: p.PodRef.Name, QOSClass: p.QOSClass, Cgroup: p.Cgroup,
			CgroupDev: p.CgroupID.Dev, CgroupIno: p.CgroupID.Ino, SandboxIDs: slices.Clone(p.SandboxIDs[:min(len(p.SandboxIDs), maxSandboxes)]),
		},
		Signal: e.Signal, Hard: e.hard, GracePeriodSeconds: e.GracePeriodSeconds, Reason: e.Reason, Message: cut(e.Message, maxMessage),
		Annotations: maps.Clone(e.Annotations), Disruption: e.Disruption, Returns: e.Returns,
	}
}

// Eviction makes one that can be carried out of what was saved of it, or says why it cannot be one. It never names a cgroup that is not
// the pod's own by its name, and none without its identity: what is killed by it must be what was ranked.
func (s *SavedEviction) Eviction() (Eviction, error) {
	info, known := signals[s.Signal]
	e := Eviction{
		Signal: s.Signal, GracePeriodSeconds: min(max(s.GracePeriodSeconds, hardGrace), maxSavedGrace), Reason: cut(s.Reason, maxName),
		Message: cut(s.Message, maxMessage), Disruption: s.Disruption, Returns: s.Returns, kind: info.kind,
	}
	if !known && !e.Local() {
		return Eviction{}, fmt.Errorf("for %.64q, which is no signal", string(s.Signal))
	}
	if e.hard = s.Hard && !e.Local(); e.hard || e.Local() {
		e.GracePeriodSeconds = hardGrace
	}
	if e.Returns > implausible {
		e.Returns = 0
	}
	size := 0
	for key, value := range s.Annotations {
		size += len(key) + len(value)
	}
	if size > 0 && size <= 4*maxMessage {
		e.Annotations = maps.Clone(s.Annotations)
	}
	return e, s.Pod.into(&e.Pod)
}

// into makes the pod, as far as it was saved.
func (s *SavedPod) into(p *stats.PodStats) error {
	if err := checkWord("a UID", s.UID); err != nil {
		return err
	}
	for _, w := range [][2]string{{"a namespace", s.Namespace}, {"a name", s.Name}} {
		if err := checkWord(w[0], w[1]); err != nil && w[1] != "" {
			return fmt.Errorf("pod %s: %w", s.UID, err)
		}
	}
	if !slices.Contains([]stats.QOSClass{stats.BestEffort, stats.Burstable, stats.Guaranteed, ""}, s.QOSClass) {
		return fmt.Errorf("pod %s: %.64q is no QoS class", s.UID, string(s.QOSClass))
	}
	if len(s.SandboxIDs) > maxSandboxes {
		return fmt.Errorf("pod %s: %d sandboxes", s.UID, len(s.SandboxIDs))
	}
	for _, id := range s.SandboxIDs {
		if err := checkWord("the ID of a sandbox", id); err != nil {
			return fmt.Errorf("pod %s: %w", s.UID, err)
		}
	}
	if s.Cgroup == "" && len(s.SandboxIDs) == 0 {
		return fmt.Errorf("pod %s: neither its cgroup nor a sandbox is known", s.UID)
	}
	if s.Cgroup != "" {
		dir, base := path.Split(s.Cgroup)
		c, ok := stats.ParsePodCgroup(strings.Trim(dir, "/"), base)
		switch {
		case len(s.Cgroup) > maxPath || s.Cgroup != c.Path || s.Cgroup != path.Clean(s.Cgroup) || strings.HasPrefix(s.Cgroup, ".."):
			return fmt.Errorf("pod %s: %.300q is no path of a cgroup", s.UID, s.Cgroup)
		case !ok || c.UID != s.UID:
			return fmt.Errorf("pod %s: %q is not its cgroup", s.UID, s.Cgroup)
		case s.CgroupIno == 0:
			return fmt.Errorf("pod %s: which cgroup %q was is not known", s.UID, s.Cgroup)
		}
	}
	p.PodRef = stats.PodReference{UID: s.UID, Namespace: s.Namespace, Name: s.Name}
	p.QOSClass, p.Cgroup, p.SandboxIDs, p.Announced = s.QOSClass, s.Cgroup, slices.Clone(s.SandboxIDs), s.Name != ""
	p.CgroupID.Dev, p.CgroupID.Ino = s.CgroupDev, s.CgroupIno
	return nil
}

// checkWord holds what names are: something, not too long, on one line, without spaces and slashes.
func checkWord(what, text string) error {
	switch {
	case text == "":
		return errors.New(what + " is missing")
	case len(text) > maxName:
		return fmt.Errorf("%s of %d bytes", what, len(text))
	case strings.ContainsFunc(text, func(r rune) bool {
		return r == '/' || r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}):
		return fmt.Errorf("%.64q is not %s", text, what)
	}
	return nil
}

// cut bounds a text that comes from outside, at a whole character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
