{{ config(materialized='view') }}
select day
from {{ ref('by_day') }}
where total >= 30
