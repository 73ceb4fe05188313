// Package api serves a ledger to programs, under /api/v1: operations, requests for approval, the audit and a report to be
// read, and what persons decide. Who asks is told by a bearer token (see package people). It translates and decides
// nothing.
//
// Errors are application/problem+json; times are RFC 3339 in UTC; lists are paged by the cursor that the answer before
// gave as next, and a page may be shorter than its limit although there are more.
package api
