// Package podspec compares the manifests of package pods/spec with the defaulting and validation of
// Kubernetes: the same verdict, about the same fields, and the same defaulted object.
package podspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/yaml"

	"jettison/pods/spec"
)

// seeds returns the range of objects to compare. JETTISON_PODS is their number, 1,000 if not set,
// JETTISON_SEED the first.
func seeds() (from, to int) {
	count := 1000
	if n, err := strconv.Atoi(os.Getenv("JETTISON_PODS")); err == nil {
		count = n
	}
	from, _ = strconv.Atoi(os.Getenv("JETTISON_SEED"))
	return from, from + count
}

// tally counts the results of all objects.
type tally struct {
	mu                                 sync.Mutex
	objects, valid, invalid, different int
	many                               int            // objects of which only the verdict was compared
	by                                 map[string]int // differences, by reason
	fields                             map[string]int // errors of both, by field
}

func TestManifestsAreUpstreams(t *testing.T) {
	all := &tally{by: map[string]int{}, fields: map[string]int{}}
	from, to := seeds()
	var next atomic.Int64
	next.Store(int64(from))
	t.Run("objects", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for seed := int(next.Add(1) - 1); seed < to && !t.Failed(); seed = int(next.Add(1) - 1) {
					all.compare(t, seed)
				}
			})
		}
	})
	t.Logf("%d objects: %d valid, %d invalid to both; %d with a documented difference; %d with so many errors that only the verdict was compared",
		all.objects, all.valid, all.invalid, all.different, all.many)
	for _, why := range slices.Sorted(maps.Keys(all.by)) {
		t.Logf("%6d %s", all.by[why], why)
	}
	t.Logf("errors about %d fields", len(all.fields))
	for _, name := range slices.Sorted(maps.Keys(all.fields)) {
		t.Logf("%6d %s", all.fields[name], name)
	}
}

// compare compares one object.
func (a *tally) compare(t *testing.T, seed int) {
	r := rand.New(rand.NewPCG(uint64(seed), 41))
	object := generate(t, r)
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	manifest := text
	if r.IntN(2) == 0 {
		if manifest, err = yaml.JSONToYAML(text); err != nil {
			t.Fatal(err)
		}
	}
	objects, errs := spec.Parse(manifest, "")
	theirs, list, err := upstream(text)
	ours := map[string]bool{}
	typed := false // ours found values of a wrong type, and did not look further
	for _, e := range errs {
		ours[e.Field] = true
		if e.Line < 1 || e.Line > 1+strings.Count(string(manifest), "\n") {
			t.Errorf("seed %d: line of %v = %d, want a line of the manifest", seed, e, e.Line)
		}
		typed = typed || strings.Contains(e.Err.Error(), "want a quantity") || strings.Contains(e.Err.Error(), "is negative") ||
			strings.Contains(e.Err.Error(), "NUL character")
	}
	want := map[string]bool{}
	for _, e := range list {
		want[e.Field] = true
	}
	var reasons, unexplained []string
	explain := func(name string, isOurs bool) {
		why := improvement(name, isOurs, object, typed, err != nil)
		if why == "" {
			unexplained = append(unexplained, fmt.Sprintf("%s (ours %t)", name, isOurs))
		} else {
			reasons = append(reasons, why)
		}
	}
	const most = 20 // errors that Parse returns
	for name := range ours {
		if !want[name] && len(errs) <= most {
			explain(name, true)
		}
	}
	for name := range want {
		if !ours[name] && len(errs) <= most {
			explain(name, false)
		}
	}
	rejected := err != nil || len(list) > 0
	if len(reasons) == 0 && (len(errs) > 0) != rejected && (len(errs) <= most || !typed) {
		unexplained = append(unexplained, "the verdict")
	}
	if len(unexplained) > 0 {
		t.Fatalf("seed %d: unexplained differences %v\nours: %v\nwant: %v %v\n%s", seed, unexplained, errs, list, err, manifest)
	}
	if len(errs) == 0 && !rejected {
		sameObject(t, seed, objects[0], theirs, string(manifest))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects++
	if len(errs) > most {
		a.many++
	}
	switch {
	case len(reasons) > 0:
		a.different++
	case rejected:
		a.invalid++
	default:
		a.valid++
	}
	for _, why := range reasons {
		a.by[why]++
	}
	for name := range ours {
		if want[name] {
			a.fields[withoutIndexes(name)]++
		}
	}
}

// withoutIndexes returns a path without its numbers and keys.
func withoutIndexes(path string) string {
	var b strings.Builder
	for i, part := range strings.Split(path, "[") {
		if i == 0 {
			b.WriteString(part)
		} else if at := strings.LastIndexByte(part, ']'); at >= 0 {
			b.WriteString("[]" + part[at+1:])
		}
	}
	return b.String()
}

// upstream decodes, defaults and validates an object as the kubelet does (pkg/kubelet/config/common.go), with the defaults of pod-level
// resources that the API server sets.
func upstream(text []byte) (any, field.ErrorList, error) {
	object, err := apiruntime.Decode(legacyscheme.Codecs.UniversalDecoder(), text)
	if err != nil {
		return nil, nil, err
	}
	switch o := object.(type) {
	case *core.Pod:
		if o.Namespace == "" {
			o.Namespace = "default"
		}
		podutil.DefaultPodLevelResources(o)
		opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, nil, &o.ObjectMeta, nil)
		opts.ResourceIsPod = true
		list := validation.ValidatePodCreate(o, opts)
		out := &v1.Pod{}
		return out, list, corev1.Convert_core_Pod_To_v1_Pod(o, out, nil)
	case *core.ConfigMap:
		if o.Namespace == "" {
			o.Namespace = "default"
		}
		list := validation.ValidateConfigMap(o)
		out := &v1.ConfigMap{}
		return out, list, corev1.Convert_core_ConfigMap_To_v1_ConfigMap(o, out, nil)
	case *core.Secret:
		if o.Namespace == "" {
			o.Namespace = "default"
		}
		list := validation.ValidateSecret(o)
		out := &v1.Secret{}
		return out, list, corev1.Convert_core_Secret_To_v1_Secret(o, out, nil)
	}
	return nil, nil, fmt.Errorf("decoded a %T", object)
}

// sameObject compares the defaulted objects, and the hash with that of the defaulted object.
func sameObject(t *testing.T, seed int, ours *spec.Object, theirs any, manifest string) {
	t.Helper()
	var got any
	switch want := theirs.(type) {
	case *v1.Pod:
		p := ours.Pod.DeepCopy()
		p.TypeMeta = want.TypeMeta
		if want.Spec.Priority == nil { // set by the priority admission of an API server
			p.Spec.Priority = nil
		}
		got = p
	case *v1.ConfigMap:
		c := ours.ConfigMap.DeepCopy()
		c.TypeMeta = want.TypeMeta
		got = c
	case *v1.Secret:
		s := ours.Secret.DeepCopy()
		s.TypeMeta = want.TypeMeta
		got = s
	}
	if !equality.Semantic.DeepEqual(got, theirs) {
		mine, _ := yaml.Marshal(got)
		other, _ := yaml.Marshal(theirs)
		t.Fatalf("seed %d: defaulted object\n%s\nwant\n%s\nof\n%s", seed, mine, other, manifest)
	}
	var written any = ours.Pod
	if ours.ConfigMap != nil {
		written = ours.ConfigMap
	} else if ours.Secret != nil {
		written = ours.Secret
	}
	text, err := json.Marshal(written)
	if err != nil {
		t.Fatal(err)
	}
	again, errs := spec.Parse(text, "")
	if len(errs) > 0 || again[0].Hash != ours.Hash {
		t.Fatalf("seed %d: the defaulted object, written out, has errors %v or another hash, want the same object:\n%s\n%s", seed, errs, manifest, text)
	}
}

// The default pull policy depends on the tag of a parsed reference.
func TestPullPoliciesAreUpstreams(t *testing.T) {
	from, to := seeds()
	parts := []string{"a", "B", "1", ".", "-", "--", "_", "__", "___", "/", "/", ":", ":", "@", "latest", ":latest", "sha256:", "localhost", "[::1]", ":5000",
		"docker.io", strings.Repeat("0", 64), strings.Repeat("0", 32), "é", " ", "@sha256:" + strings.Repeat("0", 64), "@md5:" + strings.Repeat("0", 32)}
	for seed := from; seed < to; seed++ {
		r := rand.New(rand.NewPCG(uint64(seed), 42))
		image := "a"
		for range r.IntN(7) {
			image += parts[r.IntN(len(parts))]
		}
		if r.IntN(2) == 0 {
			image = image[1:]
		}
		if image = strings.TrimSpace(image); image == "" || len(image) > 250 { // upstream bounds the length of names
			continue
		}
		text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": image}}}})
		if err != nil {
			t.Fatal(err)
		}
		objects, errs := spec.Parse(text, "")
		theirs, list, err := upstream(text)
		if len(errs) > 0 || len(list) > 0 || err != nil {
			t.Fatalf("image %q: errors %v, upstream %v %v, want none", image, errs, list, err)
		}
		got, want := objects[0].Pod.Spec.Containers[0].ImagePullPolicy, theirs.(*v1.Pod).Spec.Containers[0].ImagePullPolicy
		if got != want {
			t.Errorf("pull policy of image %q = %s, want %s", image, got, want)
		}
	}
}
