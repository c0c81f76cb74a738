package admission

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/admit"
	"jettison/cri"
	"jettison/stats/read"
)

// Random timelines of a full node on which callers start critical pods, and create each rejected one
// again: the same pod, one of the same name, or, as a controller does, one of another name.
//
//	go test ./internal/agent/admission -run TestAttemptTimelines -attempttimelines=100000 [-attemptseed=N]
var (
	attemptTimelines = flag.Int("attempttimelines", 300, "how many random timelines of attempts pass")
	attemptSeed      = flag.Uint64("attemptseed", 0, "the first one's seed")
)

const (
	attemptTurn = 500 * time.Millisecond
	// attemptsServed bounds the time until all pods run: of each, the time until a victim ends, and
	// until the next attempt.
	attemptsServed = 30 * time.Second
	longestEnd     = 20 * time.Second // of a victim
)

// caller starts pods until as many run as it wants.
type caller struct {
	name       string
	steady     bool // each attempt is the same pod
	controller bool // each attempt has another name
	client     bool // it waits for the agent's answer
	priority   int32
	want, have int
	every      time.Duration // between two attempts
	next       time.Time
	attempts   int
	answer     chan answer // nil: it does not wait
	asked      admit.PodAttributes
}

// attempt returns the next pod to start.
func (c *caller) attempt(replica int) admit.PodAttributes {
	if c.attempts++; c.steady {
		return priority(fmt.Sprint(c.name, "-", c.have+replica), c.priority)
	}
	uid := fmt.Sprint(c.name, "-", c.attempts)
	pod := priority(uid, c.priority)
	if c.controller {
		pod.Pod.OwnerReferences = ownedBy(c.name, uid).Pod.OwnerReferences
	} else {
		pod.Pod.Name = c.name
	}
	return pod
}

// attemptLine is a ward in which callers make attempts.
type attemptLine struct {
	*ward
	*rand.Rand
	callers   []*caller
	ends      map[string]time.Time // of victims
	intruders int                  // ordinary pods that were admitted
	log       []string
}

func newAttemptLine(seed uint64) *attemptLine {
	d := rand.New(rand.NewPCG(seed, 41))
	l := &attemptLine{Rand: d, ends: map[string]time.Time{}}
	wants := 0
	for i := range 1 + d.IntN(3) {
		c := &caller{name: fmt.Sprint("c", i), want: 1, every: time.Duration(1+d.IntN(8)) * attemptTurn, priority: systemCriticalPriority + int32(d.IntN(2))}
		switch d.IntN(4) {
		case 0:
			c.steady = true
		case 1, 2:
			c.controller, c.want = true, 1+d.IntN(2)
		}
		c.client = c.want == 1 && d.IntN(4) == 0
		l.callers = append(l.callers, c)
		wants += c.want
	}
	var pods []string
	for i := range wants + 1 + d.IntN(4) {
		pods = append(pods, fmt.Sprint("p", i))
	}
	l.ward = newWard(int64(len(pods)), pods...)
	return l
}

func (l *attemptLine) say(format string, args ...any) {
	l.log = append(l.log, l.now.UTC().Format("04:05.0 ")+fmt.Sprintf(format, args...))
}

// run runs the timeline, and returns the first broken rule; empty: none.
func (l *attemptLine) run() string {
	wants := 0
	for _, c := range l.callers {
		wants += c.want
		c.next = l.now.Add(time.Duration(l.IntN(20)) * attemptTurn)
	}
	until := l.now.Add(10*time.Second + time.Duration(wants)*attemptsServed)
	for ; l.now.Before(until); l.now = l.now.Add(attemptTurn) {
		l.turn()
		if len(l.stopped) > wants+l.intruders {
			return fmt.Sprintf("%d victims for %d pods, while %d ordinary pods were admitted", len(l.stopped), wants, l.intruders)
		}
		if int64(len(l.pods))-int64(len(l.stopped)-len(l.dying())) > l.maxPods {
			return fmt.Sprintf("%d pods run, want at most %d", len(l.pods), l.maxPods)
		}
	}
	for _, c := range l.callers {
		if c.have < c.want {
			return fmt.Sprintf("%d of %d pods of %s run at the end", c.have, c.want, c.name)
		}
	}
	return ""
}

func (l *attemptLine) turn() {
	for _, uid := range l.dying() {
		if !l.now.Before(l.ends[uid]) {
			l.say("%s ends", uid)
			l.markDead(uid)
		}
	}
	l.Advance(l.now)
	for _, c := range l.callers {
		l.collect(c)
		if l.now.Before(c.next) || c.answer != nil {
			continue
		}
		c.next = l.now.Add(c.every)
		for replica := range c.want - c.have {
			l.try(c, c.attempt(replica))
		}
	}
	switch l.IntN(40) {
	case 0: // what it frees saves a victim
		if i := l.IntN(len(l.pods) + 1); i < len(l.pods) && l.lives[string(l.pods[i].UID)] == nil && !l.pods[i].Critical() {
			l.say("%s ends by itself", l.pods[i].UID)
			l.pods = slices.Delete(slices.Clone(l.pods), i, i+1)
		}
	case 1:
		if uid := fmt.Sprint("o", len(l.log)); l.admits(ordinary(uid)) {
			l.say("ordinary pod %s is admitted", uid)
			l.pods, l.intruders = append(l.pods, admit.HeldBy(ordinary(uid))), l.intruders+1
		}
	}
}

func (l *attemptLine) admits(pod admit.PodAttributes) bool {
	state, _ := l.state(l.now)
	return admit.Admit(pod, state).Admit
}

// try makes an attempt: the pod starts, or the gate requests room for it, or the client.
func (l *attemptLine) try(c *caller, pod admit.PodAttributes) {
	if l.admits(pod) {
		l.start(c, pod)
		return
	}
	request := preemptRequest{pod: pod, at: l.now}
	if c.client {
		c.asked, c.answer = pod, make(chan answer, 1)
		request = preemptRequest{pod: pod, reply: c.answer}
	}
	before := len(l.stopped)
	l.OnRequest(context.Background(), l.now, request)
	l.say("%s is rejected", pod.Pod.UID)
	for _, uid := range l.stopped[before:] {
		l.say("%s is stopped for it", uid)
		l.ends[uid] = l.now.Add(time.Duration(1+l.IntN(int(longestEnd/attemptTurn))) * attemptTurn)
	}
}

// collect starts a client's pod if the agent answered that it fits.
func (l *attemptLine) collect(c *caller) {
	select {
	case got := <-c.answer:
		l.say("%s is answered: %v, %v", c.asked.Pod.UID, got.result.Admit, got.err)
		if c.answer = nil; got.result.Admit && l.admits(c.asked) {
			l.start(c, c.asked)
		}
	default:
	}
}

func (l *attemptLine) start(c *caller, pod admit.PodAttributes) {
	l.say("%s starts", pod.Pod.UID)
	c.have++
	l.pods = append(l.pods, admit.HeldBy(pod))
	if l.OnAdmitted(pod); len(l.Requests()) > 0 {
		l.OnRequest(context.Background(), l.now, <-l.Requests())
	}
	uid := string(pod.Pod.UID)
	l.OnPods(read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: uid, UID: uid, Namespace: pod.Pod.Namespace, Name: pod.Pod.Name, Ready: true}}}))
}

// However often a caller repeats an attempt, and under which name: each pod costs at most one victim,
// and runs in time.
func TestAttemptTimelines(t *testing.T) {
	victims, attempts := 0, 0
	for i := range uint64(*attemptTimelines) {
		l := newAttemptLine(*attemptSeed + i)
		if broken := l.run(); broken != "" {
			t.Fatalf("timeline of seed %d breaks a rule: %s\n%s", *attemptSeed+i, broken, strings.Join(l.log, "\n"))
		}
		victims += len(l.stopped)
		for _, c := range l.callers {
			attempts += c.attempts
		}
	}
	if t.Logf("%d timelines with %d attempts and %d victims", *attemptTimelines, attempts, victims); attempts < 2*victims {
		t.Errorf("attempts = %d for %d victims, want at least two for each", attempts, victims)
	}
}
