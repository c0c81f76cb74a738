package bridge

import (
	"context"
	"log/slog"

	"jettison/internal/bridge/kube"
)

// statusMinor is the first minor version of Kubernetes 1 whose admission policies can hold a bridge to its node: they are stable, and tokens
// say which node theirs is (kube_features.go, ValidatingAdmissionPolicy and ServiceAccountTokenPodNodeInfo, v1.30).
const statusMinor = 30

// server is the API server, as far as its version matters.
type server struct {
	client *kube.Client
	status bool // pods' statuses are to be written
	log    *slog.Logger
}

// statuses tells whether they are.
func (s *server) statuses(ctx context.Context) (bool, error) {
	if !s.status {
		return false, nil
	}
	minor, err := s.client.Minor(ctx)
	if err != nil {
		return false, err
	}
	if minor < statusMinor {
		s.log.Warn("the API server is too old to hold a bridge to its node: there are events alone", "minor", minor, "needed", statusMinor)
		return false, nil
	}
	return true, nil
}
