// Package frames records the agent's looks and replays them: one frame per look, one JSON object
// per line (docs/reference/formats.md).
//
//	format.go     Frame: the format
//	frame.go      FromLook: makes a frame of a live look
//	agent.go      Agent: the data that a Summary cannot hold
//	json.go       JSON encoding of both
//	check.go      checks of a well-formed frame
//	plausible.go  removes implausible numbers
//	reader.go     Reader: reads frames from a file, plain or compressed
//	view.go       converts a frame to the decision core's Summary
//	player.go     Player: decides on frames with one policy
//	output.go     Output: the decisions of a Player
//	diff.go       differences of two outputs
//	strip.go      the recorded part of a pod object
//	recorder.go   Recorder: writes frames to a file, on its own goroutine
//	budget.go     limits the bytes per minute
//	segment.go    rotates the files
//	recording.go  Recording: records the looks of a loop
package frames

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Frame is one look at a node, with the results of its decisions.
type Frame struct {
	// Time is RFC 3339, in its original form.
	Time string `json:"time"`
	// Summary is nil if every source failed.
	Summary *v1alpha1.Summary `json:"summary"`
	// Pods are all known objects from this frame on; nil: unchanged.
	Pods []v1.Pod `json:"pods,omitzero"`
	// AfterReclaim is the Summary after a reclaim in this frame; nil: it freed nothing.
	AfterReclaim *v1alpha1.Summary `json:"afterReclaim,omitzero"`
	// KillErrors has the reasons why pods evicted in this frame did not die, by UID.
	KillErrors map[string]string `json:"killErrors,omitzero"`
	// Layout of the file systems from this frame on; nil: unchanged, at first one file system.
	Layout *Layout `json:"layout,omitzero"`
	// Admit are pods to admit or reject.
	Admit []v1.Pod `json:"admit,omitzero"`
	Agent *Agent   `json:"agent,omitzero"`
	// AgentAfterReclaim is the Agent of AfterReclaim; nil: Agent is used.
	AgentAfterReclaim *Agent `json:"agentAfterReclaim,omitzero"`

	at time.Time // Time, parsed
	// source of Pods in a frame of FromLook, for a Recorder; nil in other frames
	objects []*v1.Pod
}

// Layout describes which of the node's file systems are separate (stats.Layout).
type Layout struct {
	DedicatedImageFs bool `json:"dedicatedImageFs"`
	SplitContainerFs bool `json:"splitContainerFs"`
}

// At returns the frame's time.
func (f *Frame) At() time.Time { return f.at }
