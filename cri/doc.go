// Package cri asks a container runtime about its pods over the CRI (k8s.io/cri-api, runtime v1) and has it stop them. Its
// types hold what the agent needs, and nothing that the protocol merely carries along. Every call has a deadline. Nothing
// is subscribed to, and a list that comes as a stream is read to its end or cancelled, so that no runtime ever waits for
// this client.
package cri
