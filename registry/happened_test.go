package registry_test

import (
	"strings"
	"testing"

	"toolguard.dev/registry"
)

// An error answer that tells of an effect is no refusal, whatever refusal words it has besides.
func TestClassifyEffectInError(t *testing.T) {
	words := compile(t, ``, registry.Policy{})
	refused := compile(t, ``, registry.Policy{Errors: registry.ErrorRefused})
	for _, text := range []string{
		// payments
		"Card charged. Receipt: invalid email", "Refund issued; invalid reference", "Invalid state: charge 123 already captured",
		"Charge ch_1 has already been refunded: invalid request", "charge_already_captured: not allowed",
		"Payment captured, receipt_email is invalid", "Payment made; receipt address not found",
		"Invoice marked as paid but the customer email was rejected", "payment may have been sent; status not found",
		"We charged the card. Invalid shipping address", "The charge was captured; metadata.order is not valid",
		"Payment will be processed; receipt email invalid", "Transfer completed: webhook URL not valid",
		"Denied: not only charged but refunded", "Payment authorized; capture not permitted", "payment went through, receipt denied",
		// data
		"Transaction committed; audit log denied", "Validation failed for 2 rows, imported 10", "Rejected: 2 items, accepted: 3",
		"User not found after creating the account", "invalid: ok: 3, failed: 2", "200 OK, index not found", "3 rows inserted, 1 invalid",
		"Rows 1-10 imported. Row 11: invalid date", "Record saved, but trigger denied", "updated 4 records; record 5 does not exist",
		"Record was not found after the insert", "Not fully applied: column does not exist", "skipped 2 invalid rows",
		"Not all rows imported: invalid date", "No further rows imported: invalid date", "Deleted 3 files, 1 not found",
		"not found: 2, imported: 10", "Table created, index invalid", "Row inserted and audit denied", "label not found, issue was created",
		"INSERT applied; permission denied for table audit", "invalid index after commit", "created/saved, index invalid",
		// messages
		"The message was delivered but the webhook URL is invalid", "Webhook not found, event was delivered",
		"Message posted to #general; user mention not found", "Sent to 3 recipients, 1 rejected", "Email sent; tracking pixel forbidden",
		"Message sent.\n\nReaction failed: invalid_name", "post published - thumbnail not found", "Invite sent (role not allowed)",
		"Notification queued and attachment denied", "message_not_found when reacting: message was posted", "all sent, except invalid ones",
		// issues, pull requests, files, deployments
		"PR merged but branch deletion not permitted", "Order placed; confirmation email rejected", "Issue created, label not found",
		"Created PROJ-1 but assignee not found", "Created issue PROJ-1; sprint does not exist", "Pull request merged. Branch not found",
		"Issue #4 closed; comment not permitted", "Page created under root: parent not found", "Branch deleted, tag not found",
		"commits pushed, tag rejected", "post-receive hook declined", "File written, chmod not permitted",
		"Wrote file; moved to /tmp/x; rename denied", "File uploaded: thumbnail invalid", "Denied after payment",
		"Deployed to staging; health check not found", "Job started; log stream not found", "The created order could not be found",
		"could not verify that the order was placed: not found", "Permission denied after creating the branch",
		"Could not find user after the account was created", "Release published; asset not allowed", "because the order was placed: denied",
		"invalid watcher; ticket opened", "Transfer initiated; memo invalid", "Order received; email invalid", "Payment complete; receipt invalid",
		"message is on its way; invalid", "2 invalid rows ignored", "Sent mail to bob; alice not found", "Uploaded a.txt, b.txt not found",
		"✅ Issue created\n❌ Label not found", "Invalid webhook, though order was placed", "Deleted user; profile not found",
		"Payment of $20 processed. Card not found in vault", "Booking confirmed: email invalid", "Sent, but not allowed to pin",
		"Created\nlabel not found", "forbidden: message already sent", "Step 1 done. Step 2: permission denied",
		"payment_status=paid, receipt invalid", "The following were created: A, B. Not found: C", "Completed with errors: row 2 invalid",
		"invalid: " + strings.Repeat("x ", 1<<16),
		"Charge authorized and captured, but customer not found", "post-merge hook denied", "Cannot add label: label does not exist. Issue created.",
		"Could not add label because it was not found, but issue has been created", "Receipt not sent: invalid email. Payment captured",
		"Not delivered: bob not found. Delivered: alice", "0 created, 2 updated, 1 rejected", "inserted=3 rejected=2", "invalid state after update",
		"row 1 created\nrow 2 could not be created: invalid", "Payment captured without receipt: invalid email", "Seat booked; meal not found",
		// JSON
		`{"error":"invalid email","status":"created"}`, `{"message":"Order created but email invalid"}`, `{"error":"not found","sent":true}`,
		`{"accepted":["a@x.org"],"rejected":["b"],"error":"invalid"}`, `{"created": 3, "errors": ["invalid"]}`, `{'error': 'not found', 'saved': True}`,
		`{"success":true,"error":"label not found"}`, `{"code":"not_found","message":"Order placed"}`,
		`{"error":{"code":"charge_already_refunded","message":"invalid"}}`,
	} {
		for _, e := range []*registry.Entry{words, refused} {
			if got := e.Classify(errorAnswer(text), nil, ""); got.Outcome != registry.Unknown {
				t.Errorf("%q: got %s, want unknown", text, got.Outcome)
			}
		}
	}
	for text, want := range map[string]registry.Outcome{"Card charged; receipt: invalid email": registry.Unknown,
		"invalid arguments: status must be one of created, sent": registry.Failed} {
		if got := words.Classify(protocolError(-32602, text), nil, ""); got.Outcome != want {
			t.Errorf("-32602 %q: got %s, want %s", text, got.Outcome, want)
		}
	}
	a := errorAnswer("label not found")
	a.Result = []byte(strings.Replace(string(a.Result), `"isError"`, `"structuredContent":{"status":"created","id":7},"isError"`, 1))
	if got := words.Classify(a, nil, ""); got.Outcome != registry.Unknown {
		t.Errorf("effect in structuredContent: got %s", got.Outcome)
	}
}

// Words of an effect that tell of none leave a refusal what it is.
func TestClassifyEffectWordsInRefusal(t *testing.T) {
	e := compile(t, ``, registry.Policy{})
	for _, text := range []string{
		// denied
		"Issue could not be created: title is required", "nothing was sent: invalid recipient", "no changes were made: invalid patch",
		"No changes were applied: patch is invalid", "Message not sent: channel_not_found", "Email wasn't sent: invalid address",
		"The card has not been charged: card declined", "0 rows updated: record not found", "Cannot be deleted: not permitted",
		"Record couldn’t be saved: invalid date", "Unable to mark as paid: permission denied", "Order can't be placed: insufficient stock",
		"None of the rows were imported: invalid header", "Payment was declined and no money was transferred",
		"imported 0 rows: invalid header", "has not yet been merged: not allowed", "File could not be read and written: permission denied",
		"Object could not be created, updated, or deleted: forbidden", "The message was never delivered: user does not exist",
		"Not a single row was inserted: invalid date", "Refund rejected before anything was sent", "Not created. Invalid title.",
		`{"success":false,"error":"not found"}`, `{"created":false,"error":"invalid title"}`, `{"sent":0,"error":"invalid recipient"}`,
		// wished for, or a condition
		"status must be one of: draft, scheduled, published", "Status must be draft, published, or archived", "invalid: must be sent as JSON",
		"The invoice must be confirmed first: not allowed", "Page not found. It may have been moved or deleted",
		"No such file: check whether it was moved or deleted", "not permitted unless the order is completed", "amount has to be paid in EUR: invalid currency",
		"Only scheduled messages can be sent: not allowed", "Post must already be published: not permitted", "Invalid transition from started to completed",
		"Transition from paid to refunded is not allowed", "Allowed values are created, sent: invalid status", "invalid value: expected one of draft, sent",
		"Edits are not allowed after submission", "cannot be changed after the order was placed: not permitted",
		"Cannot update: page is published: not permitted", "You must have created a project: project not found",
		// names and values
		"created_at is required", "updatedAt must be a date", "Invalid enum value. Expected 'created' | 'sent', received 'x'", `Folder "Sent Items" not found`,
		"Folder not found: Deleted Items", `invalid status "paid"`, `column "updated" does not exist`, "invalid status: completed",
		"Unsupported event type: created", "permission denied for table deleted_users", "file not found: /srv/created/sent.txt",
		"Not Found https://docs.example.com/rest/created", `[{"code":"invalid_enum_value","options":["created","sent"],"received":"x","path":["status"],"message":"Invalid enum value"}]`,
		"1 validation error for createArguments\ntitle\n  Field is required [type=missing, input_value={'body': 'Order was placed'}, input_type=dict]",
		"EACCES: permission denied, open '/data/uploaded'", "Could not find exact match for edit:\nif saved { // the order was created",
		// what the request names
		"Uploaded file is invalid", "The uploaded file is not valid", "Saved search not found", "Stored procedure x not found", "Scheduled message not found",
		"Invalid file uploaded", "Invalid data submitted.", "The value submitted for x is invalid", "Invalid created date", "Unsupported file type uploaded",
		"Published pages cannot be edited: not allowed", "This feature requires a paid plan: forbidden", "Access denied: only confirmed users may post",
		"You are not allowed to edit deleted messages", "Only the user who created the issue may edit it: forbidden", "Invalid format. Accepted formats: png, jpg",
		"invalid submitted value", "Account closed: access denied", "Not permitted: issue closed", "cannot find completed tasks",
		"Amount paid must be positive", "property created is not allowed", "params/created must be string", "unauthorized: token issued by unknown issuer",
		"Cannot refund: payment not captured, invalid", "The scheduled time is invalid", "A deleted branch cannot be merged: not permitted",
		"the comment could not be posted because the issue does not exist", "Insufficient funds, transfer not executed",
		"invalid patch: hunk 3 could not be applied", "file already exists and was not overwritten", "Invalid recipient: user has not confirmed email",
		`{"error":{"message":"Invalid charge","type":"invalid_request_error","param":"created"}}`, `{"ok":false,"error":"channel_not_found"}`,
		`{"errorMessages":["Issue does not exist or you do not have permission to see it."],"errors":{}}`,
		"Merge is not permitted: required review has not been submitted", "Resource was not created: name is required",
		"the record has been archived: not permitted", "Conversation has been locked: not permitted", "Nothing was written. Path not allowed",
		"object not found: refs/heads/updated", "Refund amount is invalid: greater than amount charged", "The channel was not found or has been deleted",
		"Invoice cannot be edited because it has been sent: not allowed", "Ensure the file was uploaded: file not found",
		"Permission has not been granted: denied", "Not allowed: comments can only be deleted by their author", "Unexpected argument posted: unknown argument",
		"Please check that the issue has been created: not found",
		// others
		"file not found", "invalid argument: amount must be positive", "permission denied: you are not allowed to delete this", "already exists",
		"Error: ENOENT: no such file or directory", "path not allowed - access denied - path outside allowed directories", "unknown tool",
		"cannot update: record is archived/closed: not permitted", "Input validation error: Invalid arguments for tool pay", "insufficient funds",
		"Could not find exact match for edit", "MCP error -32602: Invalid arguments for tool x", "not_in_channel: not allowed", "is_archived: not permitted",
		"A pull request already exists for x:main.", "Updates were rejected because the remote contains work that you do not have locally",
		"GH006: Protected branch update failed. Changes must be made through a pull request: rejected", "pre-receive hook declined",
		"Could not find page with ID: 4f. Make sure the relevant pages are shared with your integration. not found",
		"No such payment_intent: 'pi_1'", "Field 'customfield_1' cannot be set. It is not on the appropriate screen, or unknown: invalid",
		`relation "orders" does not exist`, "invalid input syntax for type integer: \"paid\"", "Bad request: body.children is required",
	} {
		if got := e.Classify(errorAnswer(text), nil, ""); got.Outcome != registry.Failed {
			t.Errorf("%q: got %s, want failed", text, got.Outcome)
		}
	}
}

// Every effect word counts, and none does behind a plain negation.
func TestEffectWords(t *testing.T) {
	e := compile(t, ``, registry.Policy{})
	for _, w := range registry.EffectWords {
		for text, want := range map[string]registry.Outcome{
			"It was " + w + "; receipt invalid": registry.Unknown, "Thing " + strings.ToUpper(w) + ". Receipt: not found": registry.Unknown,
			"denied, " + w + " 3": registry.Unknown, "Thing could not be " + w + ": not found": registry.Failed, "Invalid: it was not " + w: registry.Failed,
			"must be " + w: registry.Failed, "nothing was " + w + ": invalid": registry.Failed, "invalid field '" + w + "'": registry.Failed,
		} {
			if got := e.Classify(errorAnswer(text), nil, ""); got.Outcome != want {
				t.Errorf("%q: got %s, want %s", text, got.Outcome, want)
			}
		}
	}
}
