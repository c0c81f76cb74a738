package preflight

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// --controllers decides which of the two controllers a pod of kube-controller-manager runs.
func TestReplacedControllers(t *testing.T) {
	const both = nodeLifecycle + " " + taintEviction
	for _, c := range []struct {
		command []string
		args    []string
		want    string // "?": not readable
	}{
		{command: []string{managerName}, want: both},
		{command: []string{managerName, "--leader-elect=true"}, want: both},
		{command: []string{managerName, "--controllers=*"}, want: both},
		{command: []string{managerName, "--controllers=*,bootstrapsigner,tokencleaner"}, want: both},
		{command: []string{managerName, "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"}},
		{command: []string{managerName, "--controllers=-taint-eviction-controller,-node-lifecycle-controller,*,bootstrapsigner"}},
		{command: []string{managerName, "--controllers=*,-node-lifecycle-controller"}, want: taintEviction},
		{command: []string{managerName, "--controllers=*,-taint-eviction-controller"}, want: nodeLifecycle},
		// an older name
		{command: []string{managerName, "--controllers=*,-nodelifecycle,-taint-eviction-controller"}},
		{command: []string{managerName, "--controllers=nodelifecycle"}, want: nodeLifecycle},
		{command: []string{managerName, "--controllers=*,-nodelifecycle-controller,-taint-eviction"}, want: both},
		// without "*" only named controllers run
		{command: []string{managerName, "--controllers=bootstrapsigner"}},
		{command: []string{managerName, "--controllers=taint-eviction-controller"}, want: taintEviction},
		{command: []string{managerName, "--controllers="}},
		{command: []string{managerName, "--controllers=-*"}},
		// the first entry that names a controller decides
		{command: []string{managerName, "--controllers=node-lifecycle-controller,-node-lifecycle-controller"}, want: nodeLifecycle},
		{command: []string{managerName, "--controllers=-node-lifecycle-controller,node-lifecycle-controller"}},
		{command: []string{managerName, "--controllers=-nodelifecycle,node-lifecycle-controller,*"}, want: taintEviction},
		// a repeated flag extends the list
		{command: []string{managerName, "--controllers=*", "--v=2", "--controllers=-nodelifecycle,-taint-eviction-controller"}},
		{command: []string{managerName, "--controllers", "*,-nodelifecycle", "--v=2"}, want: taintEviction},
		{command: []string{managerName}, args: []string{"--controllers=*,-nodelifecycle"}, want: taintEviction},
		{args: []string{"--controllers=*,-nodelifecycle"}, want: taintEviction}, // the image has the command
		{command: []string{"/go-runner", "--log-file=/var/log/kcm.log", "/usr/local/bin/kube-controller-manager", "--controllers=*"}, want: both},
		{command: []string{"/bin/sh", "-c", "exec /usr/bin/kube-controller-manager --controllers='*,-node-lifecycle-controller,-taint-eviction-controller' 2>&1"}},
		{command: []string{"/bin/sh", "-c", "exec /usr/bin/kube-controller-manager --controllers='*' 2>&1"}, want: both},
		{command: []string{"/bin/sh", "-c", `exec kube-controller-manager "--v=2" --controllers="*,-node-lifecycle-controller"`}, want: taintEviction},
		{command: []string{"/bin/sh", "-c", `exec kube-controller-manager '--controllers=*,-nodelifecycle'`}, want: taintEviction},
		// other flags of the same kind
		{command: []string{managerName, "--controllers-extra=-nodelifecycle", "--concurrent-controllers=-taint-eviction-controller"}, want: both},
		// values that the pod does not show
		{command: []string{"sh", "-c", `exec kube-controller-manager --controllers="$CONTROLLERS"`}, want: "?"},
		{command: []string{managerName, "$(MORE)"}, want: "?"},
		{command: []string{"sh", "-c", "exec kube-controller-manager `cat /etc/flags`"}, want: "?"},
		{command: []string{"sh", "-c", `exec kube-controller-manager --controllers=\*`}, want: "?"},
		{command: []string{"sh", "-c", "kube-controller-manager --controllers=*; sleep 5"}, want: "?"},
		{command: []string{"sh", "-c", "kube-controller-manager --controllers=*>/log 2>&1"}, want: "?"},
		{command: []string{"sh", "-c", "(kube-controller-manager --controllers *)"}, want: "?"},
		{command: []string{"sh", "/etc/kubernetes/start.sh"}, want: "?"},
		{want: both}, // the image has the command
		{args: []string{"--v=2"}, want: both},
		{command: []string{managerName, "--cluster-name=$(NAME)", "--controllers=*"}, want: both},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
			{Name: "sidecar", Command: []string{"log", "--controllers=none"}}, {Name: managerName, Command: c.command, Args: c.args}}}}
		enabled, ok := replacedControllers(p)
		got := strings.Join(enabled, " ")
		if !ok {
			got = "?"
		}
		if got != c.want {
			t.Errorf("command %q %q: enabled = %q, want %q", c.command, c.args, got, c.want)
		}
	}
}

// Only a running kube-controller-manager counts.
func TestIsManager(t *testing.T) {
	for what, c := range map[string]struct {
		name    string
		command []string
		phase   v1.PodPhase
		want    bool
	}{
		"by its container":         {managerName, nil, v1.PodRunning, true},
		"by its program":           {"main", []string{"/usr/bin/kube-controller-manager"}, v1.PodPending, true},
		"ended":                    {managerName, nil, v1.PodFailed, false},
		"kube-scheduler":           {"kube-scheduler", []string{"kube-scheduler", "--leader-elect"}, v1.PodRunning, false},
		"cloud-controller-manager": {"cloud-controller-manager", []string{"cloud-controller-manager"}, v1.PodRunning, false},
		"a flag that names it":     {"proxy", []string{"proxy", "--target=/kube-controller-manager"}, v1.PodRunning, false},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: c.name, Command: c.command}}}, Status: v1.PodStatus{Phase: c.phase}}
		if got := isManager(p); got != c.want {
			t.Errorf("pod %s is kube-controller-manager: %v, want %v", what, got, c.want)
		}
	}
}

// A node has taints of this program if it wrote them last, or set the out-of-service taint.
func TestHasOwnTaints(t *testing.T) {
	entry := func(manager, field string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"` + field + `":{}}}`)}
	}
	outOfService := func(value string) []v1.Taint {
		return []v1.Taint{{Key: v1.TaintNodeOutOfService, Value: value, Effect: v1.TaintEffectNoExecute}}
	}
	for what, c := range map[string]struct {
		taints []v1.Taint
		fields []metav1.ManagedFieldsEntry
		want   bool
	}{
		"none":                 {nil, nil, false},
		"written last":         {nil, []metav1.ManagedFieldsEntry{entry("kubelet", "f:podCIDR"), entry(fieldManager, "f:taints")}, true},
		"another's":            {nil, []metav1.ManagedFieldsEntry{entry("kube-controller-manager", "f:taints")}, false},
		"another field":        {nil, []metav1.ManagedFieldsEntry{entry(fieldManager, "f:labels"), {Manager: fieldManager}}, false},
		"out of service":       {outOfService("jettison"), nil, true},
		"another's of service": {outOfService("nodeshutdown"), nil, false},
	} {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.fields}, Spec: v1.NodeSpec{Taints: c.taints}}
		if got := hasOwnTaints(n); got != c.want {
			t.Errorf("%s: hasOwnTaints = %v, want %v", what, got, c.want)
		}
	}
}
