// How workgroups that share work find out who is the last of them. The kernel names `tickets`, zeros before and after.
//
// Row invariance: the ticket decides who goes on, never what comes of it.

var<workgroup> is_last: u32;
var<private> arrived: u32; // workgroups before this one

// Draws a ticket: all that this workgroup has read or written before comes before what the last of them does.
fn arrive(ticket: u32, thread: u32) {
    storageBarrier();
    workgroupBarrier();
    if thread == 0u {
        arrived = atomicAdd(&tickets[ticket], 1u);
    }
}

// Whether the workgroup that drew a ticket is the last of so many. What the others wrote atomically before is read by atomic
// loads, which no cache makes stale.
fn was_last(ticket: u32, workgroups: u32, thread: u32) -> bool {
    if thread == 0u {
        if arrived == workgroups - 1u {
            atomicStore(&tickets[ticket], 0u);
        }
        is_last = u32(arrived == workgroups - 1u);
    }
    workgroupBarrier();
    storageBarrier();
    return is_last == 1u;
}

fn arrives_last(ticket: u32, workgroups: u32, thread: u32) -> bool {
    arrive(ticket, thread);
    return was_last(ticket, workgroups, thread);
}
