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
	"jettison/eviction"
	"jettison/internal/base/output"
	"jettison/internal/cli/flags"
	"jettison/stats"
)

// Problem is a fault of the node or its agent, or a note for the operator.
type Problem struct {
	What string `json:"what"`
	Do   string `json:"do,omitempty"` // action for the operator; empty: none
	// Advice marks a note: the node is healthy.
	Advice bool `json:"advice,omitempty"`
}

// findProblems fills in Problems and Healthy. agentErr is the error of the query to the agent,
// nodeErr the error of reading the node without it; nil: none.
func (r *Report) findProblems(agentErr, nodeErr error) {
	add := func(what, do string) { r.Problems = append(r.Problems, Problem{What: what, Do: do}) }
	r.forbidden = errors.Is(agentErr, os.ErrPermission)
	if agentErr != nil {
		what := "the agent does not answer, jettison evicts no pod on this node: "
		if !notListening(agentErr) {
			what = "the state of the agent is unknown: "
		}
		add(what+flags.Reason(agentErr), agentAction(agentErr))
	}
	if nodeErr != nil {
		do := runCheck
		if errors.Is(nodeErr, os.ErrPermission) {
			do = "run this command as root; " + do
		}
		add("cannot read this node: "+output.OneLine(nodeErr.Error()), do)
	}
	if r.State != nil {
		r.addStateProblems(agentErr)
	}
	r.Healthy = !slices.ContainsFunc(r.Problems, func(p Problem) bool { return !p.Advice })
}

// runCheck is the action for a source that cannot be read.
const runCheck = "run jettison check: it lists what is missing"

// notListening reports whether err proves that no agent listens on the socket. Any other error
// leaves open whether an agent runs and evicts.
func notListening(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// agentAction returns the action for an agent that could not be queried.
func agentAction(err error) string {
	var statusErr *api.StatusError
	answered := errors.As(err, &statusErr)
	switch {
	case notListening(err):
		return "start it (systemctl start jettison, or its DaemonSet), then read its log"
	case errors.Is(err, errNoSocket):
		return "set socket in the configuration; until then read the agent's log"
	case errors.Is(err, os.ErrPermission), answered && (statusErr.Status == http.StatusForbidden ||
		statusErr.Status == http.StatusUnauthorized):
		return "run this command as root or as a member of socketGroup"
	case errors.Is(err, api.ErrMalformed), answered &&
		statusErr.Status != http.StatusServiceUnavailable:
		return "compare the versions of agent and command (jettison version) and upgrade both"
	}
	return "read the agent's log (journalctl -u jettison, or its pod's log) and /proc/pressure: " +
		"the agent may be starved"
}

// addConfigProblem adds the error of the configuration that this command read, unless the agent
// reports an error of its configuration itself.
func (r *Report) addConfigProblem(configErr error) {
	if configErr == nil || r.Agent != "" && r.State.Config != nil && r.State.Config.Error != "" {
		return
	}
	r.Problems = append(r.Problems, Problem{What: "the configuration is invalid: " +
		flags.Reason(configErr), Do: fixConfig})
	r.Healthy = false
}

// fixConfig is the action for an invalid configuration.
const fixConfig = "fix the file (jettison config check FILE): the agent does not restart with it"

// Problems returns the problems and notes that follow from the agent's state.
func Problems(s *api.State) []Problem {
	r := &Report{State: s, Problems: []Problem{}}
	r.addStateProblems(nil)
	return r.Problems
}

// addStateProblems adds the problems that follow from State: the agent's, or, if agentErr is set,
// the one that this command read from the node.
func (r *Report) addStateProblems(agentErr error) {
	s := r.State
	add := func(what, do string) { r.Problems = append(r.Problems, Problem{What: what, Do: do}) }
	if s.Runtime.Lost {
		add("the container runtime does not answer at "+s.Runtime.Endpoint,
			"start the container runtime, or set containerRuntimeEndpoint to its socket")
	}
	for _, c := range s.Conditions {
		switch {
		case c.Status && meets(s, c.Type):
			add(fmt.Sprintf("%s: %s", c.Type, c.Reason),
				"run jettison explain: it shows which pod is evicted next and why")
		case c.Status:
			add(fmt.Sprintf("%s: %s, no longer below a threshold", c.Type, c.Reason),
				"wait: the condition ends evictionPressureTransitionPeriod after the shortage; "+
					"jettison records shows the evictions")
		}
	}
	for _, m := range s.Met {
		action := "no agent acts on it"
		if !notListening(agentErr) {
			action = "it is unknown whether an agent acts on it"
		}
		if agentErr != nil {
			add(fmt.Sprintf("the threshold %s of %s is met (observed %s), %s", m.Threshold, m.Signal,
				m.Observed, action), "")
		}
	}
	if s.BreakerOpen != "" {
		add("evictions are stopped: "+s.BreakerOpen,
			"find what uses the resource: jettison top lists pods; check processes outside pods, too")
	}
	if s.Unexplained != "" {
		add("no pod is evicted for disk pressure: "+s.Unexplained,
			"find large files outside pods (du) and unused images (jettison gc --dry-run)")
	}
	for _, u := range s.SetAside {
		add("pod "+title(u.UID, u.Pod)+" survived its kill and is set aside",
			"find its process that hangs in the kernel (/proc/PID/stack); the node may need a reboot")
	}
	if c := s.Config; c != nil && c.Error != "" {
		add("the new configuration is invalid, the agent keeps the previous one: "+
			output.OneLine(c.Error), fixConfig)
	}
	sources := make([]string, 0, len(s.Errors))
	for source := range s.Errors {
		sources = append(sources, source)
	}
	slices.Sort(sources)
	for _, source := range sources {
		add("cannot read "+source+": "+output.OneLine(s.Errors[source]), runCheck)
	}
	r.advise()
}

// meets reports whether a threshold of the condition's signals is met.
func meets(s *api.State, condition api.Condition) bool {
	return slices.ContainsFunc(s.Met, func(m api.MetState) bool {
		met := eviction.Met{Threshold: eviction.Threshold{Signal: m.Signal}}
		return api.Condition(met.Condition()) == condition
	})
}

// advise adds the notes, which leave the node healthy.
func (r *Report) advise() {
	s := r.State
	advice := func(what, do string) {
		r.Problems = append(r.Problems, Problem{What: what, Do: do, Advice: true})
	}
	if s.DryRun {
		advice("dry run: the agent decides but kills no pod",
			"start the agent without --dry-run to evict pods")
	}
	if c := s.Config; c != nil && len(c.NextStart) > 0 {
		advice("changed configuration fields that need a restart: "+strings.Join(c.NextStart, ", "),
			"restart the agent")
	}
	if s.Config != nil && !slices.ContainsFunc(s.Signals,
		func(s api.SignalState) bool { return s.Signal == stats.SignalMemoryAvailable }) {
		advice("no threshold for memory.available: only the kernel's OOM killer ends a pod that leaks",
			"set evictionHard memory.available in the agent's configuration; jettison config print "+
				"shows where each threshold is set")
	}
	if h := s.Headroom; h.ThresholdBytes > 0 && h.NeededBytes > h.ThresholdBytes {
		advice(fmt.Sprintf("the hard threshold of memory.available leaves %s of headroom; processes on "+
			"this node can allocate %s before a kill frees memory",
			output.Bytes(h.ThresholdBytes), output.Bytes(h.NeededBytes)),
			"raise evictionHard memory.available to at least "+output.Bytes(h.NeededBytes))
	}
	if u := s.Pods.UnknownPriority; u != nil && u.Unprotected > 0 {
		advice(fmt.Sprintf("the priority of %s is unknown: a critical pod among them is evicted like any "+
			"other", output.Count(u.Unprotected, "pod")),
			"have a client send the pod objects: docs/reference/socket.md")
	}
	if g := s.Gate; g != nil && len(g.Holds) > 0 {
		advice(describeHolds(g.Holds), "")
	}
	if s.Pods.Stale > 0 && s.Pods.ClientHeard != nil {
		advice(fmt.Sprintf("no client has sent pod objects for %v: the objects of %s may be stale "+
			"and are still used",
			output.Span(s.Time.Sub(*s.Pods.ClientHeard)), output.Count(s.Pods.Stale, "pod")),
			"check the client; for jettison-bridge, read its log")
	}
	if s.Pods.RefusedObjects > 0 {
		advice(fmt.Sprintf("ignored: %s of clients without a matching pod of the runtime",
			output.Count(s.Pods.RefusedObjects, "pod object")), "read the agent's log (journalctl -u jettison)")
	}
	if len(s.AtOwnLimit) > 0 {
		advice(describeLimits(s.AtOwnLimit), "")
	}
}

// describeHolds returns the number of pods that are held off, and the longest hold-off.
func describeHolds(holds []api.HoldState) string {
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
	who := "pod " + title(longest.UID, longest.Pod)
	if o := longest.Owner; o != nil {
		who = fmt.Sprintf("%s/%s of a %s and its replacement", o.Namespace, o.Pod, o.Kind)
	}
	return fmt.Sprintf("held off: %s; longest: %s, %s time, until %s: %s",
		output.Count(pods, "evicted pod"), who, ordinal(longest.Times), output.Time(longest.Until),
		output.OneLine(longest.Reason))
}

// title names a pod, by its UID if the agent did not name it.
func title(uid string, pod stats.PodReference) string {
	pod.UID = uid
	return api.Title(pod)
}

// ordinal returns an English ordinal number: 1st, 2nd, 11th.
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

// maxNamedPods is the number of pods at their own limits that are named, so that the screen stays
// short.
const maxNamedPods = 3

func describeLimits(limits []api.LimitState) string {
	var names []string
	for _, l := range limits[:min(len(limits), maxNamedPods)] {
		names = append(names, cmp.Or(strings.Trim(l.Pod.Namespace+"/"+l.Pod.Name, "/"), "uid:"+l.Pod.UID))
	}
	if len(limits) == 1 {
		return "pod " + names[0] + " is at its own memory limit"
	}
	more := ""
	if n := len(limits) - maxNamedPods; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return "pods at their own memory limit: " + strings.Join(names, ", ") + more
}
