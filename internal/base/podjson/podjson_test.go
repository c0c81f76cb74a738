package podjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unique"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/admit"
	"jettison/eviction"
	"jettison/stats"
)

const meta = `"metadata":{"uid":"u1","namespace":"default","name":"web"}`

// decodeAll decodes a body like a Put.
func decodeAll(r io.Reader) (pods []*v1.Pod, err error) {
	err = List(r, nil, func(_ int, raw []byte) error {
		p, err := Pod(raw)
		if err == nil {
			pods = append(pods, p)
		}
		return err
	})
	return pods, err
}

// Each error is one line that names the pod and the cause.
func TestErrors(t *testing.T) {
	pod := func(rest string) string { return `[{` + meta + rest + `}]` }
	resources := func(q string) string {
		return pod(`,"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":` + q + `}}}]}`)
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", ``, `incomplete text`},
		{"space", " \n", `incomplete text`},
		{"not JSON", `pods`, `invalid character 'p' looking for beginning of value`},
		{"a number", `3`, `want a JSON list of pods, or {"items": [...]}`},
		{"a pod", `{"apiVersion":"v1","kind":"Pod",` + meta + `}`, `kind: got "Pod", want "PodList"`},
		{"an object without items", `{"apiVersion":"v1"}`, `want a JSON list of pods, or {"items": [...]}`},
		{"items of another type", `{"items":3}`, `items: want a list`},
		{"items twice", `{"items":[],"items":[]}`, `duplicate field "items"`},
		{"an unknown field of the list", `{"item":[]}`, `unknown field "item"`},
		{"another kind of list", `{"kind":"NodeList","items":[]}`, `kind: got "NodeList", want "PodList"`},
		{"another version", `{"apiVersion":"v2","items":[]}`, `apiVersion: got "v2", want "v1"`},
		{"a version of another type", `{"apiVersion":{},"items":[]}`, `apiVersion: got map[], want "v1"`},
		{"two lists", `[][]`, `more text after the list of pods`},
		{"truncated", `[{` + meta, `pods[0]: incomplete text`},
		{"truncated between pods", `[{` + meta + `},`, `pods[1]: incomplete text`},
		{"no comma", `[{` + meta + `} {}]`, `pods[1]: expected comma after array element`},
		{"null", `[null]`, `pods[0]: metadata.uid: missing`},
		{"no uid", `[{` + meta + `},{"metadata":{"namespace":"a","name":"b"}}]`, `pods[1]: metadata.uid: missing`},
		{"no namespace", `[{"metadata":{"uid":"a","name":"b"}}]`, `pods[0]: metadata.namespace: missing`},
		{"no name", `[{"metadata":{"uid":"a","namespace":"b"}}]`, `pods[0]: metadata.name: missing`},
		{"a path for a uid", `[{"metadata":{"uid":"../a","namespace":"a","name":"b"}}]`, `pods[0]: metadata.uid: "../a": want letters, digits and -`},
		{"a parent directory for a uid", `[{"metadata":{"uid":"..","namespace":"a","name":"b"}}]`, `pods[0]: metadata.uid: "..": want letters, digits and -`},
		{"a line in a uid", `[{"metadata":{"uid":"a\nb","namespace":"a","name":"b"}}]`, `pods[0]: metadata.uid: "a\nb": want letters, digits and -`},
		{"a long uid", `[{"metadata":{"uid":"` + strings.Repeat("u", 129) + `","namespace":"a","name":"b"}}]`,
			`pods[0]: metadata.uid: "` + strings.Repeat("u", 40) + `"...: longer than 128 characters`},
		{"an unknown field", pod(`,"spec":{"containers":[{"name":"c"},{"name":"d","resource":{}}]}`), `pods[0]: unknown field "spec.containers[1].resource"`},
		{"another case", pod(`,"Spec":{}`), `pods[0]: unknown field "Spec"`},
		{"a field twice", pod(`,"spec":{"priority":1,"priority":2}`), `pods[0]: duplicate field "spec.priority"`},
		{"another kind", pod(`,"kind":"Node"`), `pods[0]: apiVersion "", kind "Node": want v1, Pod`},
		{"text for a number", pod(`,"spec":{"priority":"high"}`), `pods[0]: spec.priority: want a whole number of 32 bits, got "high"`},
		{"a number too great", pod(`,"spec":{"priority":1e99}`), `pods[0]: spec.priority: want a whole number of 32 bits, got 1e99`},
		{"no quantity", resources(`"1Mx"`), `pods[0]: spec.containers[0].resources.requests.memory: want a quantity, got "1Mx"`},
		{"an absurd quantity", resources(`"1e-99990000"`), `pods[0]: spec.containers[0].resources.requests.memory: quantity "1e-99990000": the exponent is not between -1000 and 1000`},
		{"an absurd one in spaces", resources(`" 1e-99990000 "`), `pods[0]: spec.containers[0].resources.requests.memory: quantity "1e-99990000": the exponent is not between -1000 and 1000`},
		{"an absurd number", resources(`1E+99990000`), `pods[0]: spec.containers[0].resources.requests.memory: quantity "1E+99990000": the exponent is not between -1000 and 1000`},
		{"an exponent out of range", resources(`"1e99999999999999999999"`), `pods[0]: spec.containers[0].resources.requests.memory: quantity "1e99999999999999999999": the exponent is not between -1000 and 1000`},
		{"a long quantity", resources(strings.Repeat("1", 1000)), `pods[0]: spec.containers[0].resources.requests.memory: quantity "` + strings.Repeat("1", 40) + `"...: longer than 100 characters`},
		{"a negative quantity", resources(`"-1"`), `pods[0]: spec.containers[0].resources.requests.memory: quantity "-1" is negative`},
		{"a duplicate field that hides one", pod(`,"spec":{"overhead":{"cpu":"1"},"overhead":{"cpu":"1e-99990000"}}`), `pods[0]: spec.overhead.cpu: quantity "1e-99990000": the exponent is not between -1000 and 1000`},
		{"an escaped field", pod(`,"spec":{"over\u0068ead":{"cpu":"1e-99990000"}}`), `pods[0]: spec.overhead.cpu: quantity "1e-99990000": the exponent is not between -1000 and 1000`},
		{"deep", pod(`,"spec":` + strings.Repeat(`[`, 20000) + strings.Repeat(`]`, 20000)), `pods[0]: invalid character '[' exceeded max depth`},
		{"less deep", pod(`,"spec":{"x":` + strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100) + `}`), `pods[0]: unknown field "spec.x"`},
	} {
		began := time.Now()
		_, err := decodeAll(strings.NewReader(c.text))
		if err == nil {
			t.Errorf("text with %s accepted, want an error", c.name)
		} else if got := err.Error(); got != c.want {
			t.Errorf("error for %s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if d := time.Since(began); d > tooLong {
			t.Errorf("%s: decoding took %v, want less", c.name, d)
		}
	}
}

// tooLong exceeds the time of a busy machine for any test here: unbounded work takes hours.
const tooLong = time.Minute

func TestLists(t *testing.T) {
	one := `{` + meta + `,"kind":"Pod","apiVersion":"v1"}`
	for text, want := range map[string]int{
		`[]`: 0, ` [ ] `: 0, `{"items":null}`: 0, `{"items":[]}`: 0, `[` + one + `]`: 1, `[` + one + "\n,\t" + one + `]`: 2,
		`{"apiVersion":"v1","items":[` + one + `],"kind":"List","metadata":{"resourceVersion":""}}`:                   1,
		`{"kind":"PodList","metadata":{"resourceVersion":"1","continue":""},"apiVersion":"v1","items":[` + one + `]}`: 1,
	} {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
			if pods, err := decodeAll(r); err != nil || len(pods) != want {
				t.Errorf("%s, %s: %d pods, error %v; want %d", text, how, len(pods), err, want)
			}
		}
	}
}

// Too large text is rejected before all of it is in memory or decoded.
func TestTooLarge(t *testing.T) {
	big := strings.Repeat("a", MaxPod)
	many := func(item string) string { return strings.Repeat(item+",", 1<<18) + item }
	for name, text := range map[string]string{
		"one pod":             `[{"metadata":{"name":"` + big + `"}}]`,
		"space":               `[` + strings.Repeat(" ", 2*MaxPod) + `]`,
		"the list's metadata": `{"metadata":{"a":"` + big + big + `"},"items":[]}`,
		"a field's name":      `{"` + big + big + `":1}`,
		"decoded: containers": `[{` + meta + `,"spec":{"containers":[` + many(`{}`) + `]}}]`,
		"decoded: pointers":   `[{` + meta + `,"spec":{"containers":[` + strings.Repeat(`{"lifecycle":{"postStart":{},"preStop":{}}},`, 20000) + `{}]}}]`,
		"decoded: a map":      `[{` + meta + `,"spec":{"overhead":{` + entries(60000) + `}}}]`,
	} {
		r := strings.NewReader(text + strings.Repeat(" ", 8*MaxPod))
		pods, err := decodeAll(r)
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %d pods, error %.100v; want ErrTooLarge", name, len(pods), err)
		}
		if byMemory := strings.Contains(name, "decoded"); err != nil && byMemory != strings.Contains(err.Error(), "decoded") {
			t.Errorf("%s: error %v, want about memory when decoded %v", name, err, byMemory)
		}
		if read := int(r.Size()) - r.Len(); read > 4*MaxPod {
			t.Errorf("%s: List read %d bytes, want at most 4 MiB", name, read)
		}
	}
}

func entries(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%d":"1",`, i)
	}
	return b.String() + `"x":"1"`
}

// Errors of the reader are wrapped, because the caller answers them differently.
func TestReaderError(t *testing.T) {
	readErr := errors.New("broken")
	for _, text := range []string{``, `[`, `[{`, `[{` + meta + `}`, `{"items":[`, `{"a`} {
		if _, err := decodeAll(io.MultiReader(strings.NewReader(text), iotest.ErrReader(readErr))); !errors.Is(err, readErr) {
			t.Errorf("reader fails after %q: error %v, want %v", text, err, readErr)
		}
	}
}

// Wherever a pod may have a quantity, one that is slow to parse is rejected before it is parsed.
func TestEveryQuantityIsGuarded(t *testing.T) {
	found := 0
	var walk func(typ reflect.Type, before, after string, depth int)
	walk = func(typ reflect.Type, before, after string, depth int) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if depth > 12 {
			return
		}
		switch {
		case typ == reflect.TypeFor[resource.Quantity]():
			found++
			text := before + `"1e-99990000"` + after
			if err := guard([]byte(text), bounds{memory: maxDecoded}); err == nil || !strings.Contains(err.Error(), "exponent") {
				t.Errorf("guard of %s: error %v, want about the exponent", text, err)
			}
		case reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Unmarshaler]()):
		case typ.Kind() == reflect.Slice && typ.Elem().Kind() != reflect.Uint8:
			walk(typ.Elem(), before+`[`, `]`+after, depth+1)
		case typ.Kind() == reflect.Map:
			walk(typ.Elem(), before+`{"k":`, `}`+after, depth+1)
		case typ.Kind() == reflect.Struct:
			for i := range typ.NumField() {
				f := typ.Field(i)
				if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
					walk(f.Type, before+`{"`+name+`":`, `}`+after, depth+1)
				} else if f.Anonymous {
					walk(f.Type, before, after, depth+1)
				}
			}
		}
	}
	walk(reflect.TypeFor[v1.Pod](), "", "", 0)
	if found < 20 {
		t.Errorf("%d quantities found, want at least 20: the walk is wrong", found)
	}
	t.Logf("%d places", found)
}

// realistic returns a pod of usual size as an API server returns it.
func realistic(i int) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%d","generateName":"web-7d4b9c6f5-","namespace":"shop","uid":"0f5a4a0e-26d0-4b6c-9a4e-%012d",
"resourceVersion":"123456","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"web","pod-template-hash":"7d4b9c6f5"},
"annotations":{"kubernetes.io/config.source":"api","jettison/priority":"7","prometheus.io/scrape":"true","notes":"%s"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-7d4b9c6f5","uid":"a","controller":true,"blockOwnerDeletion":true}],
"managedFields":[{"manager":"kubelet","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{%s}}}}]},
"spec":{"volumes":[{"name":"cache","emptyDir":{"sizeLimit":"1Gi"}},{"name":"conf","configMap":{"name":"web","items":[{"key":"a","path":"b"}]}},
{"name":"data","hostPath":{"path":"/srv/data"}},{"name":"zone","hostPath":{"path":"/etc/localtime"}},
{"name":"claim","persistentVolumeClaim":{"claimName":"web"}},
{"name":"token","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}}]}}],
"containers":[{"name":"web","image":"registry.example/web:1","command":["/web"],"args":["-v"],"env":[%s{"name":"X","value":"1e-99990000"}],
"ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":81,"hostPort":8081}],
"resources":{"limits":{"cpu":"2","memory":"1Gi","ephemeral-storage":"2Gi"},"requests":{"cpu":"500m","memory":"512Mi","ephemeral-storage":"1Gi"}},
"volumeMounts":[{"name":"cache","mountPath":"/cache"},{"name":"data","mountPath":"/data"},{"name":"data","mountPath":"/more","subPath":"more"},
{"name":"claim","mountPath":"/claim"},
{"name":"zone","mountPath":"/etc/localtime","readOnly":true}],"livenessProbe":{"httpGet":{"path":"/","port":80}}},
{"name":"proxy","image":"registry.example/proxy:1","resources":{"limits":{"memory":"64Mi"},"requests":{"memory":"64Mi"}}}],
"initContainers":[{"name":"setup","restartPolicy":"Always","resources":{"requests":{"memory":"32Mi"}}}],
"overhead":{"memory":"10Mi","ephemeral-storage":"1Mi"},"resources":{"requests":{"memory":"1Gi"}},
"restartPolicy":"Always","terminationGracePeriodSeconds":30,"nodeName":"n1","priority":1000,"priorityClassName":"mid",
"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]},
"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory.","qosClass":"Burstable","conditions":[{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z"}],
"containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}},"ready":true,"restartCount":0,"image":"web","imageID":"web","started":true}]}}`,
		i, i, strings.Repeat("n", 500), strings.Repeat(`"f:x":{},`, 200)+`"f:y":{}`, strings.Repeat(`{"name":"SOME_VARIABLE","value":"some value"},`, 40))
}

// Trim keeps the fields that the eviction policy and readers of records need: decisions are the
// same as with the whole object.
func TestTrim(t *testing.T) {
	raw := []byte(realistic(1))
	var whole v1.Pod
	if err := json.Unmarshal(raw, &whole); err != nil {
		t.Fatal(err)
	}
	p, err := Pod(raw)
	if err != nil {
		t.Fatal(err)
	}
	_ = whole.Spec.Volumes[0].EmptyDir.SizeLimit.String() // NewPod does the same
	if a, b := eviction.NewPod(p), eviction.NewPod(&whole); !reflect.DeepEqual(a, b) {
		t.Errorf("eviction.Pod of the trimmed object = %+v, of the whole one = %+v", a, b)
	}
	if p.ManagedFields != nil || p.Spec.Containers[0].Env != nil || p.Spec.Containers[0].Command != nil || p.Status.ContainerStatuses != nil || len(p.Annotations) != 2 {
		t.Errorf("trimmed pod has unneeded fields: %+v", p)
	}
	if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || p.Status.Message != "" {
		t.Errorf("trimmed status = %+v, want Failed and Evicted without the message", p.Status)
	}
	if ports := p.Spec.Containers[0].Ports; len(ports) != 1 || ports[0].HostPort != 8081 {
		t.Errorf("trimmed ports = %v, want only the host port", ports)
	}
	if mounts := p.Spec.Containers[0].VolumeMounts; !reflect.DeepEqual(mounts, []v1.VolumeMount{{Name: "data"}, {Name: "claim"}}) {
		t.Errorf("trimmed mounts = %v, want only the names of the volumes that are written and not measured", mounts)
	}
	t.Logf("%d bytes of JSON, %d in memory", len(raw), Size(p))
}

func FuzzList(f *testing.F) {
	// The texts are short, because the fuzzer spends its time minimizing long ones.
	f.Add([]byte(`[{` + meta + `,"spec":{"containers":[{"name":"c","resources":{"limits":{"memory":"1Gi"},"requests":{"cpu":1e3}}}]}}]`))
	f.Add([]byte(`[{` + meta + `,"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1.5Gi"}}],"priority":7}},{}]`))
	for _, s := range []string{`{"items":[{` + meta + `}],"kind":"List"}`, `[{` + meta + `,"spec":{"overhead":{"cpu":"1e-99990000"}}}]`, `[[[{}]]]`, `{"items":[null]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		began := time.Now()
		pods, err := decodeAll(strings.NewReader(string(text)))
		if d := time.Since(began); d > tooLong {
			t.Fatalf("decoding %d bytes took %v, want less", len(text), d)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Fatalf("error of more than one line: %q", err)
		}
		for _, p := range pods {
			if p.UID == "" || p.Name == "" || p.Namespace == "" {
				t.Fatalf("decoded pod without identity: %+v", p)
			}
			eviction.NewPod(p)
			out, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Pod(out)
			if err != nil {
				t.Fatalf("Pod() of an encoded pod = %v, want it accepted:\n%s", err, out)
			}
			if more, _ := json.Marshal(again); string(more) != string(out) {
				t.Fatalf("encoding changed from %s to %s", out, more)
			}
		}
	})
}

func BenchmarkPod(b *testing.B) {
	raw := []byte(realistic(1))
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Pod(raw); err != nil {
			b.Fatal(err)
		}
	}
}

// Trim keeps the fields that admission needs: each pod is rejected for one reason, as a whole
// object and trimmed.
func TestTrimKeepsWhatAdmissionNeeds(t *testing.T) {
	sysctls, err := admit.NewSysctls([]string{"user.*"})
	if err != nil {
		t.Fatal(err)
	}
	held := admit.Held{UID: "other", Ports: []admit.Port{{IP: unique.Make("0.0.0.0"), Protocol: unique.Make("TCP"), Port: 80}}}
	n := admit.NodeState{
		Name: "n", Labels: map[string]string{"disk": "ssd"}, Taints: []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoExecute}}, Sysctls: sysctls,
		AppArmor: stats.Some(false), SupplementalGroups: stats.Some(false), Pods: []admit.Held{held},
		Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), "example.com/gpu": resource.MustParse("1")},
	}
	const tolerant = `"tolerations":[{"operator":"Exists"}],`
	for spec, want := range map[string]string{
		`"containers":[{"name":"c"}]`:                                          "TaintToleration",
		tolerant + `"nodeName":"m","containers":[{"name":"c"}]`:                "NodeName",
		tolerant + `"nodeSelector":{"disk":"hdd"},"containers":[{"name":"c"}]`: "NodeAffinity",
		tolerant + `"os":{"name":"windows"},"containers":[{"name":"c"}]`:       "PodOSNotSupported",
		tolerant + `"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"disk","operator":"In","values":["hdd"]}]}]}}},"containers":[{"name":"c"}]`: "NodeAffinity",
		tolerant + `"containers":[{"name":"c","ports":[{"containerPort":1,"hostPort":80}]}]`:                                                          "NodePorts",
		tolerant + `"hostNetwork":true,"containers":[{"name":"c","ports":[{"containerPort":80}]}]`:                                                    "NodePorts",
		tolerant + `"initContainers":[{"name":"s","restartPolicy":"Always","ports":[{"containerPort":1,"hostPort":80}]}],"containers":[{"name":"c"}]`: "NodePorts",
		tolerant + `"securityContext":{"sysctls":[{"name":"kernel.msgmax","value":"1"}]},"containers":[{"name":"c"}]`:                                 "SysctlForbidden",
		tolerant + `"securityContext":{"sysctls":[{"name":"user.max_user_namespaces","value":"1"}]},"containers":[{"name":"c"}]`:                      "SysctlForbidden",
		tolerant + `"hostUsers":false,"nodeName":"m","securityContext":{"sysctls":[{"name":"user.max_user_namespaces","value":"1"}]}`:                 "NodeName",
		tolerant + `"hostIPC":true,"securityContext":{"sysctls":[{"name":"kernel.shm_rmid_forced","value":"1"}]},"containers":[{"name":"c"}]`:         "SysctlForbidden",
		tolerant + `"hostNetwork":true,"securityContext":{"sysctls":[{"name":"net.ipv4.tcp_syncookies","value":"1"}]},"containers":[{"name":"c"}]`:    "SysctlForbidden",
		tolerant + `"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"c"}]`:                                      "AppArmor",
		tolerant + `"containers":[{"name":"c","securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}}]`:                                      "AppArmor",
		tolerant + `"containers":[{"name":"c"}],"ephemeralContainers":[{"name":"e","securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}}]`: "AppArmor",
		tolerant + `"securityContext":{"supplementalGroupsPolicy":"Strict"},"containers":[{"name":"c"}]`:                                              "SupplementalGroupsPolicyNotSupported",
		tolerant + `"containers":[{"name":"c","resources":{"requests":{"example.com/gpu":"2"}}}]`:                                                     "OutOfexample.com/gpu",
		tolerant + `"overhead":{"cpu":"2"},"containers":[{"name":"c"}]`:                                                                               "OutOfcpu",
		tolerant + `"resources":{"requests":{"cpu":"2"}},"containers":[{"name":"c"}]`:                                                                 "OutOfcpu",
		tolerant + `"initContainers":[{"name":"i","resources":{"limits":{"cpu":"2"}}}],"containers":[{"name":"c"}]`:                                   "OutOfcpu",
	} {
		text := []byte(`{"metadata":{"uid":"u","namespace":"default","name":"p"},"spec":{` + spec + `}}`)
		var whole v1.Pod
		if err := json.Unmarshal(text, &whole); err != nil {
			t.Fatalf("json.Unmarshal of a pod with spec %s = %v", spec, err)
		}
		trimmed, err := Pod(text)
		if err != nil {
			t.Fatalf("Pod() of a pod with spec %s = %v, want it accepted", spec, err)
		}
		for form, p := range map[string]*v1.Pod{"whole": &whole, "trimmed": trimmed} {
			if got := admit.Failures(admit.PodAttributes{Pod: p}, n); len(got) != 1 || got[0].Reason != want {
				t.Errorf("failures of the pod with %s, %s object = %+v, want %s", spec, form, got, want)
			}
		}
		if a, b := admit.HeldBy(admit.PodAttributes{Pod: &whole}), admit.HeldBy(admit.PodAttributes{Pod: trimmed}); !reflect.DeepEqual(a, b) {
			t.Errorf("pod with %s: whole object holds %+v, trimmed one %+v", spec, a, b)
		}
	}
	annotated := []byte(`{"metadata":{"uid":"u","namespace":"default","name":"p","annotations":{"container.apparmor.security.beta.kubernetes.io/c":"runtime/default","x":"y"}},"spec":{` + tolerant + `"containers":[{"name":"c"}]}}`)
	p, err := Pod(annotated)
	if err != nil {
		t.Fatal(err)
	}
	if got := admit.Failures(admit.PodAttributes{Pod: p}, n); len(got) != 1 || got[0].Reason != "AppArmor" || len(p.Annotations) != 1 {
		t.Errorf("failures with an AppArmor annotation = %+v, annotations %v; want AppArmor", got, p.Annotations)
	}
}

// A library that adds to the pod's own requests does not change the original object.
func TestTrimCopiesRequestsOfPod(t *testing.T) {
	whole := &v1.Pod{Spec: v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{"memory": resource.MustParse("1.5Gi")}}}}
	q := Trim(whole).Spec.Resources.Requests["memory"]
	q.Add(resource.MustParse("1Gi"))
	if got := whole.Spec.Resources.Requests.Memory().Value(); got != 3<<29 {
		t.Errorf("original request = %d, want 1.5Gi", got)
	}
}

// What the kubelet allocated stays, because it and not the spec is the pod's request. The statuses
// of a pod that was not resized go if the total shows that the pod has an allocation.
func TestTrimKeepsTheAllocation(t *testing.T) {
	const spec = `"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"1Ti"},"limits":{"memory":"2Ti"}}},{"name":"d","resources":{"requests":{"memory":"1Gi"}}}],` +
		`"initContainers":[{"name":"i","restartPolicy":"Always","resources":{"requests":{"memory":"1Ti"}}}]}`
	const d = `{"name":"d","image":"x","allocatedResources":{"memory":"1Gi"},"resources":{"requests":{"memory":"1Gi"}}}`
	const c = `{"name":"c","image":"x","allocatedResources":{"cpu":"1","memory":"100Mi"},"resources":{"requests":{"cpu":"1","memory":"100Mi"},"limits":{"memory":"1Gi"}}}`
	const asIs = `{"name":"c","image":"x","allocatedResources":{"cpu":"1","memory":"1Ti"},"resources":{"requests":{"cpu":"1","memory":"1Ti"},"limits":{"memory":"2Ti"}}}`
	const i = `"initContainerStatuses":[{"name":"i","image":"x","allocatedResources":{"memory":"1Gi"}}]`
	for name, c := range map[string]struct {
		status string
		kept   []string
	}{
		"a total":         {`"allocatedResources":{"memory":"3Gi"},"containerStatuses":[` + d + `,` + c + `,` + c + `,{"name":"e","allocatedResources":{"memory":"1"}}],` + i, []string{"c", "d", "i"}},
		"not resized":     {`"allocatedResources":{"cpu":"1","memory":"3Ti"},"containerStatuses":[` + d + `,` + asIs + `],"initContainerStatuses":[{"name":"i","allocatedResources":{"memory":"1Ti"}}]`, nil},
		"a low total":     {`"allocatedResources":{"cpu":"1","memory":"1Ti"},"containerStatuses":[` + d + `,` + asIs + `],"initContainerStatuses":[{"name":"i","allocatedResources":{"memory":"1Ti"}}]`, []string{"c", "d", "i"}},
		"one not started": {`"allocatedResources":{"cpu":"1","memory":"3Gi"},"containerStatuses":[` + d + `],` + i, []string{"d", "i"}},
		"no total":        {`"containerStatuses":[` + d + `,` + c + `],` + i, []string{"c", "d", "i"}},
		"only the total":  {`"allocatedResources":{"memory":"3Gi"},"containerStatuses":[{"name":"c","image":"x"}]`, nil},
		"nothing":         {`"allocatedResources":{},"containerStatuses":[{"name":"c","allocatedResources":{}}]`, nil},
		"only what is on": {`"containerStatuses":[{"name":"d","image":"x","resources":{"requests":{"memory":"1Gi"}}}]`, []string{"d"}},
	} {
		raw := []byte(`{` + meta + `,` + spec + `,"status":{` + c.status + `}}`)
		var whole v1.Pod
		if err := json.Unmarshal(raw, &whole); err != nil {
			t.Fatal(err)
		}
		p, err := Pod(raw)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := eviction.NewPod(p), eviction.NewPod(&whole); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: eviction.Pod of the trimmed object = %+v, of the whole one = %+v", name, a, b)
		}
		if a, b := admit.HeldBy(admit.PodAttributes{Pod: &whole}), admit.HeldBy(admit.PodAttributes{Pod: p}); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: whole object holds %+v, trimmed one %+v", name, a, b)
		}
		var kept []string
		for _, s := range append(p.Status.ContainerStatuses, p.Status.InitContainerStatuses...) {
			kept = append(kept, s.Name)
			if s.Image != "" {
				t.Errorf("%s: status of %s keeps an image", name, s.Name)
			}
		}
		if !reflect.DeepEqual(kept, c.kept) {
			t.Errorf("%s: kept statuses of %v, want %v", name, kept, c.kept)
		}
		before := p.String()
		if applyLimits(p); p.String() != before {
			t.Errorf("%s: limits changed an ordinary pod from %s to %s", name, before, p)
		}
		DropAllocation(p)
		if stats.Allocated(p) || stats.Granted(p) != p {
			t.Errorf("%s: an allocation is left in %+v", name, p.Status)
		}
	}
}

// A pod beyond the limits keeps no more of its status than of its spec.
func TestLimitsCutTheAllocation(t *testing.T) {
	p := &v1.Pod{}
	for i := range 2 * maxContainers {
		name := fmt.Sprint("c", i)
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: name, AllocatedResources: v1.ResourceList{
			v1.ResourceMemory: resource.MustParse("1"), v1.ResourceName(fmt.Sprint("example.com/", i)): resource.MustParse("1")}})
	}
	p = Trim(p)
	applyLimits(p)
	if n := len(p.Status.ContainerStatuses); n != maxContainers || resources(p) != 1 {
		t.Errorf("%d statuses with %d kinds of resources, want %d with 1", n, resources(p), maxContainers)
	}
}
