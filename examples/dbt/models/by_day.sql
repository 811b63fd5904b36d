select day, sum(amount) as total
from {{ source('sales', 'orders') }}
group by day
