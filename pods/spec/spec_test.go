package spec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"

// A new field of a type fails this test, until the table has a verdict on it. So does a supported
// field whose type the table lacks.
func TestFieldsAreComplete(t *testing.T) {
	for typ, verdicts := range fields {
		known := jsonFields(typ, nil)
		for name := range verdicts {
			if _, ok := known[name]; !ok {
				t.Errorf("verdict on field %s of %s, which does not exist", name, typ)
			}
		}
		for name, f := range known {
			verdict, ok := verdicts[name]
			if !ok {
				t.Errorf("no verdict on field %s of %s", name, typ)
			}
			if verdict != supported {
				continue
			}
			elem := f.Type
			for elem.Kind() == reflect.Pointer || elem.Kind() == reflect.Slice || elem.Kind() == reflect.Map {
				if special[elem] != nil {
					break
				}
				elem = elem.Elem()
			}
			if elem.Kind() == reflect.Struct && special[elem] == nil && fields[elem] == nil {
				t.Errorf("field %s of %s is supported, and the table lacks its type %s", name, typ, elem)
			}
		}
	}
}

// one returns the only object of a text.
func one(t *testing.T, text string) *Object {
	t.Helper()
	objects, errs := Parse([]byte(text), "n1")
	if len(errs) > 0 || len(objects) != 1 {
		t.Fatalf("Parse returned %d objects, errors %v, want one object:\n%s", len(objects), errs, text)
	}
	return objects[0]
}

const plain = head + `spec:
  containers:
  - name: c
    image: busybox
    ports: [{containerPort: 80}]
    resources: {limits: {memory: 1Gi, cpu: 1}}
    lifecycle: {preStop: {httpGet: {port: 80}}}
  resources: {limits: {memory: 2Gi}}
  priorityClassName: system-node-critical
`

// What does not change a pod does not change its hash (A03).
func TestHashOfTheSamePod(t *testing.T) {
	want := one(t, plain).Hash
	for name, text := range map[string]string{
		"a comment and another order": `# comment
spec:
  priorityClassName: system-node-critical
  resources: {limits: {memory: 2Gi}}
  containers:
  - image: busybox # comment
    lifecycle: {preStop: {httpGet: {port: 80}}}
    resources: {limits: {cpu: 1000m, memory: 1024Mi}}
    ports: [{containerPort: 80}]
    name: c
kind: Pod
metadata: {name: web}
apiVersion: v1
`,
		"JSON and another name": `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "uid": "u"}, "spec": {"containers": [{"name": "c",
"image": "busybox", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": 1, "memory": 1073741824}}, "lifecycle": {"preStop": {"httpGet":
{"port": 80}}}}], "resources": {"limits": {"memory": "2Gi"}}, "priorityClassName": "system-node-critical"}}`,
		"written defaults": head + `spec:
  containers:
  - name: c
    image: busybox
    imagePullPolicy: Always
    ports: [{containerPort: 80, protocol: TCP}]
    resources: {limits: {memory: 1Gi, cpu: 1}, requests: {memory: 1Gi, cpu: 1}}
    lifecycle: {preStop: {httpGet: {port: 80, path: /, scheme: HTTP}}}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
    securityContext: {}
    env: []
  resources: {limits: {memory: 2Gi, cpu: 1}, requests: {memory: 1Gi, cpu: 1}}
  priorityClassName: system-node-critical
  priority: 2000001000
  restartPolicy: Always
  dnsPolicy: ClusterFirst
  terminationGracePeriodSeconds: 30
  enableServiceLinks: true
  schedulerName: default-scheduler
  securityContext: {}
status: {phase: Running}
`,
	} {
		if got := one(t, text).Hash; got != want {
			t.Errorf("hash with %s = %s, want that of the plain pod, %s", name, got, want)
		}
	}
}

// Every edit changes the hash.
func TestHashOfAnotherPod(t *testing.T) {
	seen := map[string]string{one(t, plain).Hash: "the plain pod"}
	for _, edit := range [][2]string{
		{"name: web", "name: web, labels: {a: ''}"},
		{"name: web", "name: web, annotations: {a: ''}"},
		{"image: busybox", "image: busybox:1"},
		{"image: busybox", "image: busybox\n    imagePullPolicy: Never"},
		{"image: busybox", "image: busybox\n    args: ['']"},
		{"image: busybox", "image: busybox\n    env: [{name: A}]"},
		{"containerPort: 80", "containerPort: 81"},
		{"memory: 1Gi", "memory: 1025Mi"},
		{"memory: 2Gi", "memory: 3Gi"},
		{"{port: 80}", "{port: 81}"},
		{"system-node-critical", "system-cluster-critical"},
		{"spec:", "spec:\n  terminationGracePeriodSeconds: 0"},
		{"spec:", "spec:\n  tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 9007199254740993}]"},
		{"spec:", "spec:\n  tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 9007199254740992}]"},
	} {
		text := strings.Replace(plain, edit[0], edit[1], 1)
		hash := one(t, text).Hash
		if before, same := seen[hash]; same {
			t.Errorf("hash with %q is the same as of %s", edit[1], before)
		}
		seen[hash] = edit[1]
	}
}

// These values are on disk and in the runtime: another one restarts every pod at an upgrade.
func TestIdentityOverUpgrades(t *testing.T) {
	if got, want := string(UID("default", "web", "Node-A")), "569a8d16-474b-817c-82aa-83318a94cf5e"; got != want {
		t.Errorf("UID = %s, want %s", got, want)
	}
	if got, want := one(t, plain).Hash, "d4ddd8e228dc732e029e3aa61b473706"; got != want {
		t.Errorf("hash = %s, want %s", got, want)
	}
	seen := map[string]bool{}
	for _, uid := range []string{string(UID("a", "bc", "n")), string(UID("ab", "c", "n")), string(UID("a", "b", "cn"))} {
		if seen[uid] || !uidText.MatchString(uid) {
			t.Errorf("UID %q is not unique, or not valid", uid)
		}
		seen[uid] = true
	}
}

// The hash is of what remains without defaults: a default of a later version then changes no hash.
func TestRemoveDefaults(t *testing.T) {
	o := one(t, plain)
	p := o.Pod.DeepCopy()
	removeDefaults(p)
	want := `{"containers":[{"image":"busybox","lifecycle":{"preStop":{"httpGet":{"port":80}}},"name":"c","ports":[{"containerPort":80}],` +
		`"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}],"priorityClassName":"system-node-critical","resources":{"limits":{"memory":"2Gi"}}}`
	if got := string(withoutEmpty(p.Spec)); got != want {
		t.Errorf("pod without its defaults:\n got %s\nwant %s", got, want)
	}
	if Default(p); !equality.Semantic.DeepEqual(p, o.Pod) {
		t.Errorf("pod with its defaults removed and set again = %+v, want %+v", p, o.Pod)
	}
}

// An existing toleration of all NoExecute taints is not added again.
func TestBindKeepsTolerations(t *testing.T) {
	o := one(t, head+"spec: {containers: [{name: c, image: a}], tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 5}]}")
	got := Bind(o.Pod, "u", "n1").Spec.Tolerations
	if len(got) != 1 || got[0].TolerationSeconds != nil {
		t.Errorf("tolerations = %v, want one without a time", got)
	}
	if o.Pod.Spec.Tolerations[0].TolerationSeconds == nil || o.Pod.Name != "web" {
		t.Error("Bind modified the manifest's pod")
	}
}

func TestPullPolicy(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]v1.PullPolicy{
		"a": v1.PullAlways, "a:latest": v1.PullAlways, "a:1": v1.PullIfNotPresent, "r:5000/a": v1.PullAlways,
		"r:5000/a:latest": v1.PullAlways, "r:5000/a:1": v1.PullIfNotPresent, "a" + digest: v1.PullIfNotPresent,
		"a:latest" + digest: v1.PullAlways, "A": v1.PullIfNotPresent, "a:5000": v1.PullIfNotPresent, "": v1.PullIfNotPresent,
		"[::1]:5000/a": v1.PullAlways, "a b": v1.PullIfNotPresent, strings.Repeat("0", 64): v1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("pull policy of %q = %s, want %s", image, got, want)
		}
	}
}

// first returns the first error of a text.
func first(t *testing.T, text []byte) string {
	t.Helper()
	began := time.Now()
	objects, errs := Parse(text, "n1")
	if d := time.Since(began); d > time.Minute {
		t.Errorf("Parse of %d bytes took %v", len(text), d)
	}
	if len(errs) == 0 {
		return fmt.Sprintf("%d objects", len(objects))
	}
	return errs[0].Error()
}

func TestBounds(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 9))
	}
	wide := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata:\n  x: &x " + strings.Repeat("x", 500_000) + "\n"
	for i := range 100 {
		wide += fmt.Sprintf("  x%d: *x\n", i)
	}
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata:\n  a.csv: |\n" + strings.Repeat("    1,2,3,4\n", 90_000)
	utf16 := "\xff\xfea\x00"
	for _, c := range []struct{ name, text, want string }{
		{"10 MB", strings.Repeat("# 8 char\n", 1_200_000), "larger than 10Mi: use several files"},
		{"an alias bomb", head + bomb, `line 4: unknown field "a"`},
		{"a bomb in a field", head + "spec: {containers: [{name: c, image: a, args: &a [*a]}]}", "line 4: spec.containers[0].args[0]: want text, got a list"},
		{"a large alias", wide, "line 5: more than 8Mi of memory when decoded: use several files"},
		{"many documents", strings.Repeat("---\n", 1_000_000), "line 1001: more than 1000 objects: use several files"},
		{"1,000 documents", strings.Repeat("apiVersion: v1\nkind: Pod\n---\n", 1001), "line 1: metadata.name: Required value: name or generateName is required"},
		{"many values", head + "spec: {containers: [" + strings.Repeat("{},", 60_000) + "]}", "line 4: document with more than about 50000 values: split it into several"},
		{"many values of JSON", `{"kind": "Pod", "a": [` + strings.Repeat("{},", 60_000) + `{}]}`, "line 1: more than 50000 values, or more than 100 levels"},
		{"deep JSON", strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200), "line 1: more than 50000 values, or more than 100 levels"},
		{"deep YAML", strings.Repeat("[", 20_000), "not YAML: exceeded max depth of 10000"},
		{"a large ConfigMap", config, "1 objects"},
		{"a ConfigMap above 1 MiB", config + strings.Repeat("    1,2,3,4\n", 50_000), "line 4: data: Too long: may not be more than 1048576 bytes"},
		{"a large Secret", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {a: " + strings.Repeat("x", 1<<20+1) + "}",
			"line 1: data: Too long: may not be more than 1048576 bytes"},
		{"a NUL", head + "\x00", "line 4: NUL byte: want UTF-8 text"},
		{"an escaped NUL", head + `spec: {containers: [{name: c, image: a, args: ["\0"]}]}`, "line 4: spec.containers[0].args[0]: text with a NUL character"},
		{"Latin 1", head + "# \xe9", "line 4: byte 0xe9: want UTF-8 text"},
		{"UTF-16", utf16, "line 1: UTF-16 text: save the file as UTF-8"},
		{"a byte order mark", "\xef\xbb\xbf" + head + "spec: {containers: [{name: c, image: a}]}", "1 objects"},
		{"line ends of Windows", strings.ReplaceAll(plain, "\n", "\r\n"), "1 objects"},
		{"half of a file", plain[:strings.Index(plain, "    image")], "line 6: spec.containers[0].image: Required value"},
	} {
		if got := first(t, []byte(c.text)); got != c.want {
			t.Errorf("Parse of %s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	if _, errs := Parse([]byte(head+"spec: {a: 1"+strings.Repeat(", b: 1, c: 2", 20)+"}"), ""); len(errs) != maxErrors+1 {
		t.Errorf("Parse returned %d errors, want %d and a note", len(errs), maxErrors)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"PodList","items":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		began := time.Now()
		objects, errs := Parse(text, "n1")
		if d := time.Since(began); d > time.Minute {
			t.Fatalf("Parse of %d bytes took %v", len(text), d)
		}
		if (len(objects) == 0) != (len(errs) > 0) {
			t.Fatalf("Parse returned %d objects and errors %v", len(objects), errs)
		}
		for _, e := range errs {
			if strings.ContainsAny(e.Error(), "\n\r") || len(e.Error()) > 1000 {
				t.Fatalf("error %q, want one short line", e)
			}
		}
		for _, o := range objects {
			if o.Name == "" || o.Namespace == "" || o.Hash == "" || o.Line < 1 {
				t.Fatalf("object %+v without a name, hash or line", o)
			}
			if o.Pod == nil {
				continue
			}
			again := o.Pod.DeepCopy()
			Default(again)
			if !reflect.DeepEqual(again, o.Pod) {
				t.Fatalf("defaulted pod %+v changed when it was defaulted again: %+v", o.Pod, again)
			}
		}
	})
}
