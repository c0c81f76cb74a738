package admit

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"jettison/stats"
)

// The scripts in testdata request decisions of a node. go test ./admit -rewrite rewrites the
// expected answers; review the diff.
//
//	node [NAME]        sets the node, one fact a line: a resource and its allocatable amount, label K=V, labels (none),
//	                   taint K=V:EFFECT, conditions A B, sysctls [PATTERN...], apparmor on|off, groups on|off, shutdown
//	pods | promised    sets the pods that hold resources, or the reservations, one pod a line (see parsePod)
//	admit              prints the decision on each pod, one a line: "admitted", or all reasons against it; the first is the kubelet's
//	preempt            prints the plan and the result for a pod
//	kill NAME=ERROR... executes the last plan: all victims die except the named ones; prints the outcome
//	choose             prints the victims for needs such as "cpu=100 memory=100 pods=1" (m, Mi) and a preemptor, as in the kubelet's tests
//	distance | subtract | smaller    the parts of that choice
func TestScripts(t *testing.T) {
	for _, pattern := range []string{"testdata/cases/*.txt", "testdata/*.txt"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no scripts match %s, error %v", pattern, err)
		}
		for _, path := range paths {
			t.Run(filepath.Base(path), func(t *testing.T) {
				s := &script{}
				datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
					text, err := s.run(d)
					if err != nil {
						d.Fatalf(t, "%v", err)
					}
					return text
				})
			})
		}
	}
}

type script struct {
	node  NodeState
	plan  Plan
	asked PodAttributes
}

func (s *script) run(d *datadriven.TestData) (string, error) {
	if d.Cmd == "node" {
		name := ""
		if len(d.CmdArgs) > 0 {
			name = d.CmdArgs[0].Key
		}
		n, err := parseNode(name, d.Input)
		n.Pods, n.Reservations = s.node.Pods, nil
		if d.HasArg("empty") {
			n.Name, n.Pods = "", nil
		}
		s.node = n
		return "ok", err
	}
	var pods []PodAttributes
	for line := range strings.Lines(d.Input) {
		p, err := parsePod(line)
		if err != nil {
			return "", fmt.Errorf("%s: %w", line, err)
		}
		pods = append(pods, p)
	}
	switch d.Cmd {
	case "pods", "promised":
		held := make([]Held, len(pods))
		for i, line := range slices.Collect(strings.Lines(d.Input)) {
			held[i] = HeldBy(pods[i])
			held[i].Protected = slices.Contains(strings.Fields(line), "spared")
		}
		if d.Cmd == "promised" {
			s.node.Reservations = held
		} else {
			s.node.Pods, s.node.Reservations = held, nil
		}
		return "ok", nil
	case "admit":
		var b strings.Builder
		for _, p := range pods {
			describe(&b, p, s.node)
		}
		return b.String(), nil
	case "preempt":
		var r Result
		s.asked = pods[0]
		s.plan, r = Preempt(s.asked, s.node)
		return s.plan.text() + text(r), nil
	case "kill":
		return s.kill(d), nil
	}
	return s.parts(d, pods)
}

func describe(b *strings.Builder, p PodAttributes, n NodeState) {
	found := Failures(p, n)
	if r := Admit(p, n); r.Admit != (len(found) == 0) || !r.Admit && (r.Reason != found[0].Reason || r.Message != found[0].Message) {
		fmt.Fprintf(b, "Admit() = %+v contradicts Failures() = %+v\n", r, found)
	}
	fmt.Fprintf(b, "%s:", p.Pod.Name)
	for _, f := range found {
		fmt.Fprintf(b, " %s: %s\n   ", f.Reason, f.Message)
	}
	if len(found) == 0 {
		b.WriteString(" admitted\n")
	} else {
		kept := strings.TrimSuffix(b.String(), "   ")
		b.Reset()
		b.WriteString(kept)
	}
}

func text(r Result) string {
	if r.Admit {
		return "admitted\n"
	}
	return r.Reason + ": " + r.Message + "\n"
}

func (p *Plan) text() string {
	var b strings.Builder
	if len(p.Needs) > 0 {
		fmt.Fprintf(&b, "needs %s\n", needsText(p.Needs))
	}
	for title, list := range map[string][]Held{"kill": p.Victims} {
		fmt.Fprintf(&b, "%s: %s\n", title, names(list))
	}
	if len(p.Awaited) > 0 {
		fmt.Fprintf(&b, "wait for: %s\n", names(p.Awaited))
	}
	return b.String()
}

func pointers(list []Held) (out []*Held) {
	for i := range list {
		out = append(out, &list[i])
	}
	return out
}

func names(list []Held) string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].Name
	}
	return "[" + strings.Join(out, " ") + "]"
}

// kill executes the last plan. Victims with a failed kill stay on the node, except those marked
// "unlisted".
func (s *script) kill(d *datadriven.TestData) string {
	failed, kills := map[string]string{}, []Kill(nil)
	for _, a := range d.CmdArgs {
		failed[a.Key] = strings.Join(a.Vals, " ")
	}
	after := s.node
	after.Pods = slices.Clone(after.Pods)
	for _, v := range slices.Concat(s.plan.Victims, s.plan.Awaited) {
		why, bad := failed[v.Name]
		if why != "unreported" {
			kills = append(kills, Kill{UID: v.UID, Error: strings.TrimPrefix(why, "unlisted ")})
		}
		if !bad || strings.HasPrefix(why, "unlisted") {
			after.Pods = slices.DeleteFunc(after.Pods, func(h Held) bool { return h.UID == v.UID })
		}
	}
	return text(s.plan.Outcome(s.asked, after, kills))
}

// parts runs the steps that the kubelet's own tests check. Needs are arguments.
func (s *script) parts(d *datadriven.TestData, pods []PodAttributes) (string, error) {
	var needs []Need
	for _, a := range d.CmdArgs {
		v, err := strconv.ParseInt(strings.Join(a.Vals, ""), 10, 64)
		if err != nil {
			return "", err
		}
		if v == 0 {
			continue
		}
		if a.Key == "memory" {
			v <<= 20
		}
		needs = append(needs, Need{v1.ResourceName(a.Key), v})
	}
	slices.SortFunc(needs, func(a, b Need) int { return compareNames(a.Resource, b.Resource) })
	held := make([]Held, len(pods))
	for i := range pods {
		held[i] = HeldBy(pods[i])
	}
	switch d.Cmd {
	case "choose": // the first one preempts
		byClass := map[stats.QOSClass][]*Held{}
		for _, h := range pointers(held[1:]) {
			if held[0].mayPreempt(h) {
				byClass[h.QOS] = append(byClass[h.QOS], h)
			}
		}
		victims, missing := choose(needs, byClass[stats.BestEffort], byClass[stats.Burstable], byClass[stats.Guaranteed])
		if len(missing) > 0 {
			return "missing " + needsText(missing) + "\n", nil
		}
		return names(values(victims)) + "\n", nil
	case "distance":
		return fmt.Sprintln(distance(needs, &held[0])), nil
	case "subtract":
		return needsText(remainingNeeds(needs, pointers(held))) + "\n", nil
	case "smaller":
		return fmt.Sprintln(smaller(&held[0], &held[1])), nil
	}
	return "", fmt.Errorf("unknown command")
}

func parseNode(name, input string) (NodeState, error) {
	n := NodeState{Name: name, Allocatable: v1.ResourceList{}}
	on := func(f []string) stats.Opt[bool] { return stats.Some(f[1] == "on") }
	for line := range strings.Lines(input) {
		f := strings.Fields(line)
		key, value, _ := strings.Cut(f[len(f)-1], "=")
		switch f[0] {
		case "labels":
			n.Labels = map[string]string{}
		case "label":
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}
			n.Labels[key] = value
		case "taint":
			value, effect, _ := strings.Cut(value, ":")
			n.Taints = append(n.Taints, v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)})
		case "conditions":
			n.Conditions = f[1:]
		case "sysctls":
			var err error
			if n.Sysctls, err = NewSysctls(f[1:]); err != nil {
				return n, err
			}
		case "apparmor":
			n.AppArmor = on(f)
		case "groups":
			n.SupplementalGroups = on(f)
		case "shutdown":
			n.ShuttingDown = true
		default:
			q, err := resource.ParseQuantity(f[1])
			if err != nil {
				return n, err
			}
			n.Allocatable[v1.ResourceName(f[0])] = q
		}
	}
	return n, nil
}

// parsePod reads "NAME [FIELD=VALUE...] [spec YAML]": cpu, mem, es (requests; with "limits" they
// are limits, with "guaranteed" both), prio, class, uid (default: the name), born (seconds),
// hostport, tolerate=KEY:EFFECT, qos, label, node; static, mirror, ending; client: a client's
// object, not a manifest; nouid.
func parsePod(line string) (PodAttributes, error) {
	line, spec, _ := strings.Cut(strings.TrimSpace(line), " spec ")
	f := strings.Fields(line)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: f[0], Namespace: "ns", UID: types.UID(f[0])}}
	if spec != "" {
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			return PodAttributes{}, err
		}
	}
	if len(p.Spec.Containers) == 0 {
		p.Spec.Containers = []v1.Container{{Name: "c"}}
	}
	out := PodAttributes{Pod: p, Manifest: true}
	list := v1.ResourceList{}
	for _, field := range f[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch resources := &p.Spec.Containers[0].Resources; key {
		case "cpu", "mem", "es":
			q, err := resource.ParseQuantity(value)
			if err != nil {
				return out, err
			}
			list[map[string]v1.ResourceName{"cpu": v1.ResourceCPU, "mem": v1.ResourceMemory, "es": v1.ResourceEphemeralStorage}[key]] = q
			resources.Requests = list
		case "limits":
			resources.Requests, resources.Limits = nil, list
		case "guaranteed":
			resources.Limits = list
		case "client":
			out.Manifest = false
		case "spared": // of what holds room; see run
		default:
			if err := setField(p, key, value); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func setField(p *v1.Pod, key, value string) error {
	number := func() int64 {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	switch key {
	case "prio":
		v := int32(number())
		p.Spec.Priority = &v
	case "class":
		p.Spec.PriorityClassName = value
	case "uid":
		p.UID = types.UID(value)
	case "nouid":
		p.UID = ""
	case "born":
		p.CreationTimestamp = metav1.NewTime(time.Unix(number(), 0))
	case "hostport":
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: int32(number())}}
	case "tolerate":
		k, effect, _ := strings.Cut(value, ":")
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: k, Operator: v1.TolerationOpExists, Effect: v1.TaintEffect(effect)})
	case "qos":
		p.Status.QOSClass = v1.PodQOSClass(value)
	case "phase":
		p.Status.Phase = v1.PodPhase(value)
	case "label":
		k, v, _ := strings.Cut(value, ":")
		p.Labels = map[string]string{k: v}
	case "node":
		p.Spec.NodeName = value
	case "annotation":
		k, v, _ := strings.Cut(value, ":")
		p.Annotations = map[string]string{k: v}
	case "static":
		p.Annotations = map[string]string{annotationSource: "file"}
	case "mirror":
		p.Annotations = map[string]string{annotationMirror: "x"}
	case "ending":
		now := metav1.NewTime(time.Unix(1, 0))
		p.DeletionTimestamp = &now
	default:
		return fmt.Errorf("unknown field %q", key)
	}
	return nil
}
