package config

import (
	"reflect"
	"testing"
	"time"

	"jettison/eviction"
	"jettison/stats"
)

// The configuration of decisions follows the file. Replay differs in three fields.
func TestEvictionConfig(t *testing.T) {
	l, err := Parse([]byte(own + `
evictionHard: {memory.available: 1Gi}
evictionMaxPodGracePeriod: 7
evictionPressureTransitionPeriod: 3m
localStorageCapacityIsolation: false
memoryAvailable: kernel
annotationNamespaces: [a]
protectedNamespaces: [b]
`))
	if err != nil {
		t.Fatal(err)
	}
	want := eviction.Config{
		Thresholds: l.Thresholds, MemoryAvailable: stats.MemoryAvailableKernel,
		Policy:                   eviction.Policy{AnnotationNamespaces: []string{"a"}, ProtectedNamespaces: []string{"b"}},
		MaxPodGracePeriodSeconds: 7, PressureTransitionPeriod: 3 * time.Minute, Breaker: true, Explain: true,
	}
	if got := l.Eviction(); !reflect.DeepEqual(got, want) || len(l.Thresholds) != 2 {
		t.Errorf("configuration of live decisions = %+v, want %+v", got, want)
	}
	want.Breaker, want.Explain, want.Replay = false, false, true
	if got := l.Replay(); !reflect.DeepEqual(got, want) {
		t.Errorf("configuration of a replay = %+v, want %+v", got, want)
	}
	if got := Default().Eviction(); !got.LocalStorage || len(got.Thresholds) != 6 {
		t.Errorf("default configuration of decisions = %+v", got)
	}
}

// The configuration of garbage collection follows the file.
func TestCollectConfig(t *testing.T) {
	l, err := Parse([]byte(own + `
gc: observe
podGoneAfter: 3s
rootDir: /r
podLogsDir: /p
cgroupRoot: /c
containerGC: {maxContainers: 4}
imageMaximumGCAge: 5h
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Collect{Policy: l.GCPolicy(), Mode: ModeObserve, PodGoneAfter: 3 * time.Second, RootDir: "/r", PodLogsDir: "/p", CgroupRoot: "/c"}
	if got := l.Collect(); got != want || want.Policy.Container.MaxContainers != 4 || want.Policy.Image.MaxAge != 5*time.Hour {
		t.Errorf("configuration of garbage collection = %+v, want %+v", got, want)
	}
}
