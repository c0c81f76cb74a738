package status

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/stats"
)

// Problem is something that is wrong, or should be known.
type Problem struct {
	What string `json:"what"`
	Do   string `json:"do,omitempty"` // about it; empty: there is nothing to do
	// Advice: the node is healthy all the same.
	Advice bool `json:"advice,omitempty"`
}

// findProblems says what is wrong. down: why the agent does not answer; blind: why nothing could be
// seen without it.
func (r *Report) findProblems(down, blind error) {
	add := func(what, do string) { r.Problems = append(r.Problems, Problem{What: what, Do: do}) }
	if down != nil {
		what := "the agent does not answer: nobody is evicted here: "
		if !nobodyListens(down) {
			what = "what the agent does is not known: "
		}
		add(what+output.OneLine(down.Error()), aboutSilence(down))
	}
	if blind != nil {
		do := "jettison check says what is missing"
		if errors.Is(blind, os.ErrPermission) {
			do = "run this command as root; " + do
		}
		add("this node cannot be read: "+output.OneLine(blind.Error()), do)
	}
	if r.State != nil {
		r.ofState(down)
	}
	r.Healthy = !slices.ContainsFunc(r.Problems, func(p Problem) bool { return !p.Advice })
}

// nobodyListens reports whether the agent does not run, by why it was not heard. Any other cause
// leaves open whether it evicts.
func nobodyListens(down error) bool {
	return errors.Is(down, syscall.ENOENT) || errors.Is(down, syscall.ECONNREFUSED)
}

// aboutSilence is what to do about an agent that was not heard.
func aboutSilence(down error) string {
	var refused *api.StatusError
	says := errors.As(down, &refused)
	switch {
	case nobodyListens(down):
		return "start it (systemctl start jettison, or its DaemonSet), and see its log"
	case errors.Is(down, errNoSocket):
		return "see its log, and set socket"
	case errors.Is(down, os.ErrPermission), says && (refused.Status == http.StatusForbidden ||
		refused.Status == http.StatusUnauthorized):
		return "run this command as root or as a member of socketGroup"
	case errors.Is(down, api.ErrMalformed), says && refused.Status != http.StatusServiceUnavailable:
		return "see that agent and command are of one version: upgrade both"
	}
	return "see its log (journalctl -u jettison, or its pod's), and /proc/pressure: it may be starved"
}

// blame says what is wrong with the configuration that this command has read, where the agent has
// not said so of its own.
func (r *Report) blame(wrong error) {
	if wrong == nil || r.Agent != "" && r.State.Config != nil && r.State.Config.Error != "" {
		return
	}
	r.Problems = append(r.Problems, Problem{What: "the configuration is wrong: " +
		output.OneLine(wrong.Error()), Do: mendFile})
	r.Healthy = false
}

// mendFile is what to do about a configuration that is wrong.
const mendFile = "mend it before the agent starts anew, for it will not start with it: jettison config check FILE"

// Problems are what is wrong with a node by what its agent says, and what should be known.
func Problems(s *api.State) []Problem {
	r := &Report{State: s, Problems: []Problem{}}
	r.ofState(nil)
	return r.Problems
}

// ofState says what is wrong by a state: the agent's, or where it was not heard (down: why) the
// command's own.
func (r *Report) ofState(down error) {
	s := r.State
	add := func(what, do string) { r.Problems = append(r.Problems, Problem{What: what, Do: do}) }
	if s.Runtime.Lost {
		add("the container runtime does not answer at "+s.Runtime.Endpoint,
			"start it, or set containerRuntimeEndpoint")
	}
	for _, c := range s.Conditions {
		if c.Status {
			add(fmt.Sprintf("%s: %s", c.Type, c.Reason),
				"jettison explain says who goes for it, and why or why not")
		}
	}
	for _, m := range s.Met {
		acts := "no agent acts"
		if !nobodyListens(down) {
			acts = "whether an agent acts is not known"
		}
		if down != nil {
			add(fmt.Sprintf("%s is %s, beyond its threshold of %s, and %s", m.Signal, m.Observed,
				m.Threshold, acts), "")
		}
	}
	if s.Stopped != "" {
		add("evictions are held back: "+s.Stopped,
			"find what else takes it: jettison top, or what grows outside of pods")
	}
	if s.Unexplained != "" {
		add("no pod goes for a disk that is short: "+s.Unexplained,
			"look for files outside of pods (du), and for images")
	}
	for _, u := range s.SetAside {
		add("pod "+u.UID+" was killed and does not die",
			"a process of it hangs in the kernel: see its /proc/PID/stack; the node may need a boot")
	}
	if c := s.Config; c != nil && c.Error != "" {
		add("the configuration was not taken, and what it was before holds: "+output.OneLine(c.Error),
			mendFile)
	}
	sources := make([]string, 0, len(s.Errors))
	for source := range s.Errors {
		sources = append(sources, source)
	}
	slices.Sort(sources)
	for _, source := range sources {
		add("not read: "+source+": "+output.OneLine(s.Errors[source]),
			"jettison check says what is missing")
	}
	r.advise()
}

// advise adds what should be known of a node that is healthy.
func (r *Report) advise() {
	s := r.State
	advice := func(what, do string) {
		r.Problems = append(r.Problems, Problem{What: what, Do: do, Advice: true})
	}
	if s.DryRun {
		advice("a dry run: the agent decides and kills nothing", "run it without --dry-run")
	}
	if c := s.Config; c != nil && len(c.NextStart) > 0 {
		advice("changed in the configuration, and read only at the start: "+
			strings.Join(c.NextStart, ", "), "restart the agent")
	}
	if s.Config != nil && !slices.ContainsFunc(s.Signals,
		func(s api.SignalState) bool { return s.Signal == stats.SignalMemoryAvailable }) {
		advice("no threshold is for memory.available: a pod that leaks is the kernel's to end",
			"set evictionHard memory.available in a file of the agent's own; jettison config print says whose thresholds hold")
	}
	if h := s.Headroom; h.ThresholdBytes > 0 && h.NeededBytes > h.ThresholdBytes {
		advice(fmt.Sprintf("the hard threshold of memory.available leaves %s; processes here can take "+
			"%s before a kill returns memory",
			output.Bytes(h.ThresholdBytes), output.Bytes(h.NeededBytes)),
			"set evictionHard memory.available to that at least")
	}
	if u := s.Pods.UnknownPriority; u != nil && u.Unprotected > 0 {
		advice(fmt.Sprintf("nobody has told the priority of %d pods: a critical one among them is "+
			"evicted like any other", u.Unprotected),
			"have a client put their objects: docs/reference/socket.md")
	}
	if g := s.Gate; g != nil && len(g.Holds) > 0 {
		advice(heldOff(g.Holds), "")
	}
	if s.Pods.Stale > 0 && s.Pods.ClientHeard != nil {
		advice(fmt.Sprintf("no client has told of pods for %v: what it said of %d may be out of date, "+
			"and counts all the same",
			output.Span(s.Time.Sub(*s.Pods.ClientHeard)), s.Pods.Stale),
			"see to the client; a bridge's log says what keeps it")
	}
	if s.Pods.RefusedObjects > 0 {
		advice(fmt.Sprintf("%d objects of clients are of other pods than the runtime has",
			s.Pods.RefusedObjects), "see the agent's log")
	}
	if len(s.AtOwnLimit) > 0 {
		advice(atOwnLimit(s.AtOwnLimit), "")
	}
}

// heldOff says who is kept out: how many, and the longest of them.
func heldOff(holds []api.HoldState) string {
	longest, pods := &holds[0], 0
	for i := range holds {
		if holds[i].UID != "" {
			pods++
		}
		if holds[i].Until.After(longest.Until) || longest.UID == "" &&
			holds[i].Until.Equal(longest.Until) {
			longest = &holds[i]
		}
	}
	who := "pod uid:" + longest.UID
	if o := longest.Owner; o != nil {
		who = fmt.Sprintf("%s/%s of a %s, and what that makes in its place,", o.Namespace, o.Pod, o.Kind)
	}
	return fmt.Sprintf("%d evicted pods are kept out, %s for the %s time until %s: %s", pods, who,
		ordinal(longest.Times),
		output.Time(longest.Until), output.OneLine(longest.Reason))
}

// ordinal is a number as people say it: 1st, 2nd, 11th.
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}

// namedAtOwnLimit is how many pods at their own limits have their names said: the screen is one.
const namedAtOwnLimit = 3

func atOwnLimit(limits []api.LimitState) string {
	var names []string
	for _, l := range limits[:min(len(limits), namedAtOwnLimit)] {
		names = append(names, cmp.Or(strings.Trim(l.Pod.Namespace+"/"+l.Pod.Name, "/"), "uid:"+l.Pod.UID))
	}
	if len(limits) == 1 {
		return "pod " + names[0] + " is at a memory limit of its own"
	}
	more := ""
	if n := len(limits) - namedAtOwnLimit; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%d pods are at memory limits of their own: %s%s", len(limits),
		strings.Join(names, ", "), more)
}
